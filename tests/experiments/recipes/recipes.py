from pathlib import Path

TINY = """
title = "A tiny table"
repetitions = 2

[model]
hidden_channels = 4
attention_dropout = 0.25

[training]
epochs = 3

[columns]
size = { label = "Effective size", dataset = "effective-size-100" }
pooling = { label = "Top-2", dataset = "top2", like = "size" }

[rows.gcn]
label = "GCN"
model = { name = "gcn" }
[rows.gcn.cells]
size = { paper = "0.0135 ± 0.0067", model = { hidden_channels = 6 } }
pooling = { paper = "57.35 ± 4.13", training = { learning_rate = 0.01 } }

[rows.gat]
label = "GAT & Co_1"
model = { name = "gat" }
ours = true
cells.size = { paper = "0.0382", model = { heads = 2 } }

[rows.gat-relu]
label = "GAT, ReLU"
model = { activation = "relu" }
like = "gat"
ours = true
"""


def write(folder: Path, text: str = TINY, name: str = "tiny.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path
