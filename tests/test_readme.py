import re
from inspect import signature
from pathlib import Path

from torch_goat.nn import GOATConv

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_example_runs_as_printed(capsys) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len([line for line in example.splitlines() if line.strip()]) <= 10
    names: dict = {}
    exec(example, names)
    assert capsys.readouterr().out.startswith("torch.Size([4, 128])\n")
    assert (names["replayed"] == names["out"]).all()


def test_the_table_lists_every_option_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `?([^`|,]+)`?", README, flags=re.MULTILINE)
    options = {name: value.strip() for name, value in rows}
    parameters = signature(GOATConv).parameters
    assert list(options) == list(parameters)
    for name, parameter in parameters.items():
        if parameter.default is not parameter.empty:
            assert options[name] == repr(parameter.default).replace("'", '"')
