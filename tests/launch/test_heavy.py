"""Heavy imports: what is left out of them, and that nothing wrong is left behind."""

import subprocess
import sys
from pathlib import Path

from src.launch.heavy import not_installed
from tests.launch.commands import environment

AFTER = """
import sys
from src.launch.heavy import heavy
heavy("pytorch_lightning")
from lightning_utilities.core.imports import RequirementCache, module_available, package_available
from torchmetrics.utilities import imports
names = {"scipy": imports._SCIPY_AVAILABLE, "torchvision": imports._TORCHVISION_AVAILABLE}
print("scipy" in sys.modules, {name: bool(flag) for name, flag in names.items()})
print(*(package_available(name) for name in names), module_available("scipy"), bool(RequirementCache("scipy")))
"""


def printed(code: str, cwd: Path) -> list[str]:
    result = subprocess.run([sys.executable, "-c", code], cwd=cwd, env=environment(), capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_scipy_is_not_loaded_and_what_lightning_knows_of_packages_is_right(tmp_path: Path) -> None:
    assert printed(AFTER, tmp_path) == ["False {'scipy': True, 'torchvision': True}", "True True True True"]


def test_a_torchvision_that_cannot_be_imported_is_none(tmp_path: Path) -> None:
    broken = 'raise RuntimeError("operator torchvision::nms does not exist")'
    code = "import sys; sys.path.insert(0, '.')\n" + AFTER
    (tmp_path / "torchvision.py").write_text(broken)
    assert printed(code, tmp_path)[0] == "False {'scipy': True, 'torchvision': False}"


def test_the_real_scipy_is_there_after_the_stand_in(tmp_path: Path) -> None:
    code = AFTER + "import scipy.signal; print(len(scipy.signal.hilbert([1.0, 2.0])), scipy.__version__ > '1')"
    assert printed(code, tmp_path)[-1] == "2 True"


def test_a_package_is_installed_again_afterwards() -> None:
    from lightning_utilities.core.imports import RequirementCache

    with not_installed("colorama"):
        assert not RequirementCache("colorama")
    with not_installed("packaging_of_nobody"):
        assert RequirementCache("numpy>=1")
    assert RequirementCache("numpy>=1")
