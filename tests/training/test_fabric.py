import subprocess
import sys

import pytest
import torch

from torch_goat.training.fabric import make_fabric


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cpu2", ""])
def test_unknown_devices_are_refused(device: str) -> None:
    with pytest.raises(ValueError, match="'auto', 'cpu', 'cuda' or 'cuda:1', got"):
        make_fabric(device, "32-true")


def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match=f"there is no device 'cuda:{torch.cuda.device_count()}'"):
        make_fabric(f"cuda:{torch.cuda.device_count()}", "32-true")


def test_half_precision_needs_a_gpu() -> None:
    with pytest.raises(ValueError, match="'16-mixed' needs a GPU"):
        make_fabric("cpu", "16-mixed")


def test_auto_takes_a_gpu_if_there_is_one() -> None:
    assert make_fabric("auto", "32-true").device.type == ("cuda" if torch.cuda.is_available() else "cpu")


CODE = """
import sys, types
sys.modules["lightning_fabric"] = None
{more}
from torch_goat.training.fabric import make_fabric
print(make_fabric("cpu", "32-true"))
"""


def call(more: str) -> subprocess.CompletedProcess[str]:
    code = CODE.format(more=more)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_without_fabric_it_says_what_to_install() -> None:
    result = call("sys.modules['lightning'] = None")
    assert "pip install 'torch-goat[train]'" in result.stderr.splitlines()[-1]


def test_fabric_may_come_from_the_larger_package() -> None:
    more = (
        "sys.modules['lightning'] = types.ModuleType('lightning')\n"
        "fabric = sys.modules['lightning.fabric'] = types.ModuleType('lightning.fabric')\n"
        "fabric.Fabric = lambda **options: sorted(options.items())"
    )
    result = call(more)
    assert result.stdout.strip() == "[('accelerator', 'cpu'), ('devices', 1), ('precision', '32-true')]", result.stderr
