"""Figures of predicted classes show the numbers that they were given."""

import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from src.evaluation.prediction import bins, confusion
from src.evaluation.prediction_figures import reliability, short, wrong_images

P = torch.softmax(2 * torch.randn(200, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), 1)
Y = torch.multinomial(P, 1, generator=torch.Generator().manual_seed(1)).squeeze(1)


def heights(axes: Axes) -> list[float]:
    return [bar.get_height() for bar in axes.patches if isinstance(bar, Rectangle)]


def test_bars_have_the_accuracy_of_their_bin() -> None:
    found = bins(P, Y)
    left, right = reliability(found, confusion(P, Y), ["a", "b", "c"]).axes
    accuracies = heights(left)[:15]
    assert accuracies == pytest.approx(found.accuracy.tolist())
    parts = heights(left)[15:30]
    assert parts == pytest.approx((found.points / 200).tolist()) and sum(parts) == pytest.approx(1)
    counts = {(text.get_position()): text.get_text() for text in right.texts}
    assert counts[1, 0] == str(int(confusion(P, Y)[0, 1]))  # true class 0 is the upper row
    assert [label.get_text() for label in right.get_yticklabels()] == ["a", "b", "c"]
    wrong = (P.argmax(1) != Y).double().mean().item()
    assert right.get_title() == f"error rate {100 * wrong:.2f} %"


def test_many_classes_have_no_numbers() -> None:
    p = torch.softmax(torch.randn(50, 20, generator=torch.Generator().manual_seed(0)), 1)
    right = reliability(bins(p.double(), p.argmax(1)), confusion(p, p.argmax(1)), [str(i) for i in range(20)]).axes[1]
    assert len(right.texts) == 0


@pytest.mark.parametrize("channels", [1, 3])
def test_wrong_images_have_their_true_and_predicted_class(channels: int) -> None:
    x = torch.rand(12, channels, 4, 4)
    figure = wrong_images(x, P[:12], (P[:12].argmax(1) + 1) % 3, ["a", "b", "an extremely long name"])
    titles = [axes.get_title() for axes in figure.axes]
    assert len(titles) == 20 and titles[12:] == [""] * 8
    guess = int(P[0].argmax())
    names = ["a", "b", "an extremel…"]
    assert titles[0] == f"{names[(guess + 1) % 3]} → {names[guess]}\n{P[0].max():.3f}"


def test_short_names_stay() -> None:
    assert short("123456789012") == "123456789012" and len(short("1234567890123")) == 12
