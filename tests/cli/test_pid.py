from pathlib import Path

import pytest

from torch_goat.cli.app import run


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def goat(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        run(["pid", *arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_xor_is_a_bit_of_synergy_and_a_model_captures_it(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = goat(capsys, "xor", "--models", "gin,sage-mean")
    assert code == 0, err
    assert "synergy            1.000 bit" in out
    assert "synergy 1.0 bit of 1.0 bit" in out
    captured = {
        line.split()[0]: float(line.split()[1]) for line in out.splitlines() if line.strip().startswith(("gin", "sage"))
    }
    assert set(captured) == {"gin", "sage-mean"}
    assert captured["gin"] > 0.5  # a network on a sum counts, and parity is in the count
    assert Path("pid-xor.png").stat().st_size > 1000
    code, _, err = goat(capsys, "xor", "--models", "none")
    assert code == 2
    assert "pid-xor.png is there already" in err


def test_half_synergy_on_a_tree(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = goat(capsys, "synergy-50-tree", "--models", "none", "--chart", "a.svg")
    assert code == 0, err
    assert "redundancy 0.5, synergy 0.5 bit of 1.0 bit" in out
    assert "captured" not in out
    assert Path("a.svg").exists()


def test_real_labels_are_binned_and_a_small_sample_is_said_to_be_small(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = goat(capsys, "betweenness-100", "--target-bins", "4", "--bins", "3", "--groups", "random")
    assert code == 0, err
    assert "a neighbour is known by its degree" in out
    assert "Warning: the sample is small for its alphabet: 100 samples" in out
    assert "cannot be told from chance" in out  # degrees of neighbours say little of betweenness


def test_the_learned_order(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_goat.cli import pid

    monkeypatch.setattr(pid, "ORDER_EPOCHS", 2)
    code, out, err = goat(capsys, "top2", "--groups", "order", "--pool", "max", "--bins", "3")
    assert code == 0, err
    assert "groups order" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["xo"], "there is no dataset 'xo'"),
        (["xor", "--groups", "role"], "there are no groups 'role'; did you mean 'roles'?"),
        (["top2", "--groups", "roles"], "needs a task of known information, but top2 is none"),
        (["xor", "--models", "gim"], "there is no model 'gim'; did you mean 'gin'?"),
        (["betweenness-100", "--models", "gin"], "betweenness-100 has real labels"),
        (["betweenness-100", "--groups", "order"], "betweenness-100 has real labels"),
        (["xor", "--values", "size"], "there is no values 'size'; known are degree, features."),
        (["xor", "--measure", "brojo"], "there is no measure 'brojo'; did you mean 'broja'?"),
        (["top2", "--pool", "sum"], "there is no pool 'sum'; known are max, mean."),
        (["xor", "--bins", "3"], "--bins 3 has nothing to cut"),
        (["top2", "--target-bins", "3"], "--target-bins 3 is for real labels, but top2 has classes"),
        (["xor", "--index", "10"], "xor has indices 0 to 9"),
        (["xor", "--chart", "chart.gif"], "must end in .png, .svg or .pdf"),
        (["top2", "--bins", "400"], "the alphabet is too large for the sample"),
    ],
)
def test_wrong_usage_is_a_sentence(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    code, _, err = goat(capsys, *arguments)
    assert code in (1, 2)
    assert message in err
    assert "Traceback" not in err
    assert not list(Path().iterdir())
