"""Wrong usage is refused with one sentence, before anything is computed or written."""

import shlex
from pathlib import Path

import pytest

from tests.app.conftest import Goat
from tests.data.tables.files import NODES, write
from tests.experiments.recipes import recipes
from tests.small_runs import small
from torch_goat.data.loader import write_graph

OWN, AGE = (f"nodes.csv edges.csv --target {target}" for target in ("label", "age"))
GCN = "betweenness-100 --model gcn"
WRONG = [
    ("trian", "train"),
    ("demo --epochs 0", "--epochs"),
    ("demo x", "x"),
    ("demo --device gpu", "the device must be 'auto', 'cpu', 'cuda' or 'cuda:1', got 'gpu'"),
    ("demo --device cuda:99", "there is no device 'cuda:99'"),
    ("demo --precision 32-tru", "did you mean '32-true'?"),
    ("demo --device cpu --precision 16-mixed", "needs a GPU"),
    ("train top2 --tensorbord", "--tensorboard"),
    ("datasets top-2", "there is no dataset 'top-2'; did you mean 'top2'?"),
    ("datasets --split paper", "--split cannot be combined with goat datasets; leave it out."),
    ("datasets --index 0", "--index cannot be combined with goat datasets; leave it out."),
    ("datasets --force", "--force cannot be combined with goat datasets; leave it out."),
    ("datasets top2 --split paper", "--split cannot be combined with goat datasets top2; leave it out."),
    ("datasets top2 --index 0", "--index cannot be combined with goat datasets top2; leave it out."),
    ("datasets top2 --force", "--force cannot be combined with goat datasets top2; leave it out."),
    ("runs none", "there is no folder none"),
    ("runs . --sort tset", "there is no column 'tset'; did you mean 'test'?"),
    ("runs . --format cvs", "there is no format 'cvs'; did you mean 'csv'?"),
    # goat train on datasets
    ("train", "name a dataset"),
    ("train betwenness-100", "did you mean 'betweenness-100'?"),
    ("train corra", "did you mean 'cora'?"),
    ("train tables/coraa", "there is no file or folder 'tables/coraa'"),
    ("train coraa --target label", "there is no file or folder 'coraa'"),
    ("train cora --target label", "--target applies to your own graph; name its files first"),
    ("train cora --repeats 5", "--repeats applies to your own graph"),
    ("train top2 --model sage", "did you mean 'sage-"),
    ("train top2 --set hads=3", "unknown key 'hads'; did you mean 'heads'?"),
    ("train top2 --set heads", "'heads' sets nothing; write it as key=value."),
    ("train top2 --set heads=many", "model.heads must be a whole number, got 'many'"),
    ("train top2 --set rnn=ltsm", "did you mean 'lstm'?"),
    ("train top2 --model gcn --set rnn=gru", "is read by no layer"),
    ("train top2 --model gcn --set fixed_ordering=3", "needs GOAT layers"),
    ("train top2 --split papr", "did you mean 'paper'?"),
    ("train top2 --index 10", "index must be between 0 and 9"),
    ("train top2 --seed -1", "seed must be from 0 to 4294967295, got -1"),
    ("train cora --split paper", "it is defined on 'cora-content'"),
    ("train top2 --data-dir none", "the data folder none does not exist"),
    ("train --config good.toml --model gat", "leave out --model gat"),
    ("train top2 --seed 3 --set seed=5", "--set seed=5 cannot be combined with --seed"),
    ("train top2 --index 1 --set index=2", "--set index=2 cannot be combined with --index"),
    ("train top2 --batch-size 9 --set batch_size=5", "--set batch_size=5 cannot be combined with --batch-size"),
    ("train top2 --batch-size 9 --fanout 2,2 --set 'training.fanout=[1, 1]'", "cannot be combined with --fanout"),
    (f"train {AGE} --threshold cost=5:1", "two classes, but it has real numbers; leave it out"),
    ("train nodes.csv edges.csv --target town --threshold 0.3", "two classes, but it has 3 classes; leave it out"),
    (f"train {GCN} --threshold cost=5:1", "threshold = 'cost=5:1' needs a target with two classes, but it has real"),
    (
        "train top2 --model gcn --threshold recall=1",
        "goat: --threshold must be a probability such as 0.3, precision=0.9, or cost=5:1 (of a false negative and "
        "a false positive), got 'recall=1'.",
    ),
    (f"train {GCN} --batch-size 20 --fanout 5,x", "--fanout must be a list of numbers such as 100,15, got '5,x'."),
    (f"train {GCN} --batch-size 20 --fanout 5,5,5", "has 3 numbers, but the model has num_layers = 2"),
    (f"train {GCN} --fanout 5,5", "needs mini-batches; set batch_size too"),
    (f"train {GCN} --workers 1", "--workers 1 needs mini-batches; set --batch-size too."),
    (f"train {GCN} --batch-size 1000", "batch_size = 1000 is more than the 60 training nodes"),
    (f"train {GCN} --batch-size -2", "batch_size must be at least 0, got -2"),
    # goat train on tables and arrays
    ("train nodes.csv edges.csv", "name the node column to predict with --target"),
    (f"train {OWN} --task guess", "task = 'guess' is unknown"),
    (f"train {OWN} --index -1", "'--index'"),
    (f"train {OWN} --split paper", "--split applies to named datasets"),
    (f"train {OWN} --fractions 1,2", "must be three numbers"),
    (f"train {OWN} --fractions 0.5,0.4,0.3", "must sum to 1"),
    (f"train {OWN} --split-column town --fractions 0.5,0.2,0.3", "--split-column and --fractions cannot be combined"),
    (f"train {OWN} --split-column town --time-column age", "--split-column and --time cannot be combined"),
    (f"train {OWN} --folds 5 --fractions 0.5,0.2,0.3", "--folds and --fractions cannot be combined"),
    (f"tune {OWN} --time age --group town", "--time and --group cannot be combined"),
    (f"train {OWN} --folds 1", "Invalid value for '--folds'"),
    (f"train {OWN} --model goatt", "did you mean 'goat'?"),
    (f"train {OWN} --model gcn --repeats 5", "--repeats 5 applies to a comparison of models"),
    (f"train {OWN} --config x.toml --repeats 5", "leave out --repeats or --config"),
    (f"train {OWN} --set permutations=4", "permutations=4 is read by no layer of this network"),
    (f"train {OWN} --minutes 0.00001", "--minutes 1e-05 is too short: "),
    (f"train {OWN} --minutes -1", "Invalid value for '--minutes'"),
    (f"train {OWN} --model gcn --minutes 5", "--minutes 5 applies to a comparison of models"),
    (f"train {OWN} --metric f1", "no metric 'f1' that compares models; choose accuracy or macro_f1 or roc_auc."),
    (f"train {OWN} --metric mse", "mse is a metric of numbers, but 'label' has classes; choose accuracy or macro_f1"),
    (f"train {AGE} --task regression --metric rmsle", "no metric 'rmsle' that compares models"),
    (f"train {AGE} --task regression --metric macro_f1", "of classes, but 'age' is a number; choose rmse."),
    ("train top2 --minutes 5", "--minutes applies to your own graph"),
    (f"train {OWN} --set epohs=4", "goat: unknown key 'epohs'; did you mean 'epochs'?\n"),
    (f"train {OWN} --set target=member", "--set target=member would change how the graph is read; use --target"),
    (f"train {OWN} --model gcn --set target=member", "--set target=member would change how the graph is read; use -"),
    (f"train {OWN} --set tables.directed=true", "--set tables.directed=true would change how the graph is read"),
    (f"train {OWN} --model gcn --set tables.directed=true", "would change how the graph is read"),
    ("train arrays --target y", "--target does not apply to a folder of arrays"),
    ("train arrays --index 1", "--index does not apply to a folder of arrays"),
    # goat tune
    (f"tune {OWN} --model all --grid", "--grid cannot be combined with --model all"),
    (f"tune {OWN} --model constant", "the model 'constant' has no settings to search; train it with goat train"),
    (f"tune {OWN} --model trees --prune", "the model 'trees' has no epochs after which a trial could be stopped"),
    (f"tune {OWN} --model trees --grid", "the paper has no grid for the model 'trees'; leave out --grid"),
    (f"tune {OWN} --model trees --space learning_rate=0.1,0.2", "learning_rate has no effect on the model 'trees'"),
    (f"tune {OWN} --model all --space scalers=identity,linear", "scalers has no effect on any of these models"),
    (f"tune {OWN} --model all --space max_leafs=4,8", "did you mean 'max_leaves'?"),
    ("tune top2 --model all", "--model all searches the models that are compared on your own graph"),
    ("tune betweenes-100", "did you mean 'betweenness-100'?"),
    (f"tune {GCN} --directed", "--directed applies to your own graph; name its files first."),
    (f"tune {GCN} --set drpout=0", "did you mean 'dropout'?"),
    (f"tune {GCN} --set seed=5", "--set seed=5 cannot be combined with --seed; use --seed alone."),
    (f"tune {GCN} --set index=3", "--set index=3 cannot be combined with --indices"),
    (f"tune {GCN} --precision 64-true --set precision=32-true", "cannot be combined with --precision"),
    (f"tune {GCN} --space drpout=0,1", "did you mean 'dropout'?"),
    (f"tune {GCN} --set epochs=2 --space epochs=2,3", "epochs is both set and searched"),
    (f"tune {GCN} --space dropout=0,1", "dropout must be at least 0 and below 1, got 1"),
    (f"tune {GCN} --space dropout", "'dropout' has no values"),
    (f"tune {GCN} --metric acuracy", "has no metric 'acuracy'"),
    (f"tune {GCN} --metric r2 --prune", "pruning uses the mse"),
    (f"tune {GCN} --indices 0,x", "--indices must be integers"),
    (f"tune {GCN} --indices 0,10", "between 0 and 9"),
    (f"tune {GCN} --storage nonsense://x --out search", "the storage nonsense://x cannot be opened"),
    (f"tune {GCN} --trials 0", "--trials"),
    ("tune nodes.csv edges.csv", "name the node column to predict with --target"),
    ("tune arrays --target y", "--target does not apply to a folder of arrays"),
    ("tune arrays --indices 0,1", "arrays has index 0 under the split 'masks', got [0, 1]"),
    (f"tune {OWN} --time-column age --indices 1", "has index 0 under the split 'time', got [1]"),
    (f"tune {OWN} --indices=-1", "has indices from 0 under the split 'random', got [-1]"),
    (f"tune {OWN} --metric pr_auc --prune", "pruning uses the accuracy, not the pr_auc"),
    (f"tune {OWN} --set tables.directed=true", "would change how the graph is read"),
    (f"tune {OWN} --metric mse", "has no metric 'mse'; known are accuracy, macro_f1, pr_auc, roc_auc"),
    # goat pid
    ("pid xo", "there is no dataset 'xo'"),
    ("pid tables/xo", "there is no file or folder 'tables/xo'"),
    ("pid xor --groups role", "there is no --groups role; did you mean 'roles'?"),
    ("pid top2 --groups roles", "needs a task of known information, which top2 is not"),
    ("pid xor --models gim", "there is no model 'gim'; did you mean 'gin'?"),
    ("pid xor --models goat", "there is no model 'goat'; choose one of goat-lstm, goat-gru, goat-rnn."),
    ("pid betweenness-100 --models gin", "betweenness-100 has real labels"),
    ("pid betweenness-100 --groups order", "betweenness-100 has real labels"),
    ("pid xor --values size", "there is no --values size; known are degree, features."),
    ("pid xor --measure brojo", "there is no --measure brojo; did you mean 'broja'?"),
    ("pid top2 --pool product", "there is no --pool product; known are max, mean, sum."),
    (f"pid {OWN} --folds 5 --time age", "--time and --folds cannot be combined"),
    ("pid xor --bins 3", "--bins 3 does not apply to --groups roles"),
    ("pid top2 --target-bins 3", "--target-bins 3 is for real labels, but top2 has classes"),
    ("pid xor --index 10", "index must be between 0 and 9"),
    ("pid xor --chart chart.gif", "must end in .png, .svg or .pdf"),
    ("pid xor --models none --chart taken.png", "taken.png already exists"),
    ("pid top2 --target label", "--target applies to your own graph"),
    ("pid top2 --bins 400", "the alphabet is too large for the sample"),
    (f"pid {OWN} --chart taken.png", "taken.png already exists"),
    (f"pid {OWN} --groups roles", "needs a task of known information"),
    (f"pid {OWN} --target-bins 2", "has classes; leave it out"),
    (f"pid {OWN} --index -1", "'--index'"),
    (f"pid {AGE} --models gin", "has real labels; leave it out"),
    # goat reproduce
    ("reproduce tabel2", "there is no table 'tabel2'; did you mean 'table2'"),
    ("reproduce mine.toml", "there is no recipe mine.toml"),
    ("reproduce table2 --only goat-lstm,gaat", "there is no row 'gaat'; did you mean 'gat'?"),
    ("reproduce table2 --datasets coraa", "there is no column 'coraa'; did you mean 'cora'?"),
    ("reproduce table2 --format latx", "there is no format 'latx'; did you mean 'latex'?"),
    ("reproduce table2 --settings gat", "--settings must be ROW=FILE with an existing file, got 'gat'"),
    ("reproduce table2 --settings gat=no.toml", "--settings must be ROW=FILE with an existing file, got 'gat=no.toml'"),
    ("reproduce table2 --precision 32", "there is no precision '32'"),
    ("reproduce tiny.toml", "tiny.toml: [training]: unknown key 'epoch'; did you mean 'epochs'?"),
    ("reproduce table1 --plan-only taken.png", "taken.png already exists"),
    ("reproduce --quick", "--quick cannot be combined with goat reproduce without a table; leave it out."),
    ("reproduce table1 --show --only gat", "--only cannot be combined with --show; leave it out."),
    ("reproduce table1 --jobs 2 --show", "--jobs cannot be combined with --show; leave it out."),
    ("reproduce table1 --show --collect", "--collect cannot be combined with --show; leave it out."),
    ("reproduce table1 --plan-only p.json --device cpu", "--device cannot be combined with --plan-only; leave it out."),
    ("reproduce table1 --plan-only p.json --collect", "--collect cannot be combined with --plan-only; leave it out."),
    ("reproduce table1 --collect --jobs 0", "--jobs cannot be combined with --collect; leave it out."),
]
# Files that are not what the command needs are no wrong usage.
WRONG_FILES = [
    ("train --config none.toml", "goat: none.toml: no such file or directory.\n"),
    ("train nodes.csv --target label", "contains only nodes; add the file of the edges"),
    (f"train {OWN} --folds 6", "nodes.csv, column 'label': the class 'no' has only 5 nodes, too few for 6 folds; use "),
    ("train none.csv edges.csv --target label", "none.csv: no such file"),
    ("pid nodes.csv edges.csv --target wishes", "wishes"),
]


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [*((command, 2, message) for command, message in WRONG), *((one, 1, message) for one, message in WRONG_FILES)],
)
def test_wrong_usage_is_one_sentence(goat: Goat, tmp_path: Path, command: str, code: int, message: str) -> None:
    write(tmp_path, NODES.replace("c,,", "c,33,"))
    write_graph(small("top2"), Path("arrays"))
    recipes.write(tmp_path, recipes.TINY.replace("epochs", "epoch"))
    Path("good.toml").write_text('dataset = "top2"\n')
    Path("taken.png").touch()
    before = {*Path().rglob("*")}
    ended = goat(*shlex.split(command), code=code)
    assert message in ended.err
    assert ended.err.startswith("Usage: goat") or ended.err.count("\n") == 1
    assert "Traceback" not in ended.err
    assert {path for path in Path().rglob("*") if path.parts[0] not in ("cache", "search")} == before
