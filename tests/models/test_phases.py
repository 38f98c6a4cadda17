"""Which phase an epoch is in, what a phase trains, and which phases are rejected."""

import pytest
from torch import nn

from src.models.phases import Phase, Position, Switch, check_phases, position
from src.runs.errors import UserError


class Net(nn.Module):
    """Two layers and a fixed parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(2, 3), nn.Linear(3, 2)
        self.noise = nn.Parameter(self.decoder.bias.detach(), requires_grad=False)

    def objective(self) -> None: ...


def phases_at(phases: tuple[Phase, ...], epochs: int) -> list[int]:
    return [position(phases, epoch).phase for epoch in range(epochs)]


def test_phases_repeat_in_order() -> None:
    assert phases_at((Phase(epochs=2), Phase(epochs=1)), 8) == [0, 0, 1, 0, 0, 1, 0, 0]
    assert position((Phase(epochs=2), Phase(epochs=3)), 8) == Position(phase=1, epoch=1)


def test_a_last_phase_without_an_end_takes_all_other_epochs() -> None:
    assert phases_at((Phase(epochs=2), Phase()), 5) == [0, 0, 1, 1, 1]
    assert phases_at((Phase(),), 3) == [0, 0, 0]


def test_a_phase_has_the_parameters_whose_names_begin_so() -> None:
    assert Phase().has("encoder.weight")
    assert Phase(parameters=("decoder", "noise")).has("decoder.bias")
    assert not Phase(parameters=("decoder", "noise")).has("encoder.decoder.bias")


REJECTED = {
    "a name that nothing begins with": (Phase(parameters=("encoder", "decodr")), "begin with 'decodr', but the model"),
    "only what the model fixed": (Phase(parameters=("noise",)), "begin with 'noise', but the model learns none"),
    "no names at all": (Phase(parameters=()), "trains no parameters"),
    "no epochs": (Phase(epochs=0), "has 0 epochs: it needs at least 1"),
    "fewer than no epochs": (Phase(epochs=-3), "has -3 epochs: it needs at least 1"),
    "no such objective": (Phase(objective="leave_one_out"), "objective leave_one_out, which is not a method"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_a_phase_that_cannot_be_trained_is_rejected(name: str) -> None:
    phase, sentence = REJECTED[name]
    with pytest.raises(UserError, match=f"^phase 1 of Net .*{sentence}"):
        check_phases(Net(), (Phase(epochs=1), phase))


def test_a_phase_after_one_without_an_end_is_rejected() -> None:
    with pytest.raises(UserError, match="phase 0 of Net has no number of epochs, so the phases after it"):
        check_phases(Net(), (Phase(), Phase(epochs=1)))
    check_phases(Net(), (Phase(epochs=1, parameters=("encoder",)), Phase()))


def test_the_switch_leaves_alone_what_the_model_fixed() -> None:
    net = Net()
    switch = Switch(net.named_parameters())

    def learned() -> set[str]:
        return {name for name, parameter in net.named_parameters() if parameter.requires_grad}

    net.encoder.weight.grad = net.encoder.weight.detach()
    switch.enter(Phase(parameters=("decoder", "noise")))
    assert learned() == {"decoder.weight", "decoder.bias"}
    assert net.encoder.weight.grad is None
    switch.enter(Phase())
    everything = {"encoder.weight", "encoder.bias", "decoder.weight", "decoder.bias"}
    assert learned() == everything
    switch.enter(Phase(parameters=("encoder.bias",)))
    switch.leave()
    assert learned() == everything
