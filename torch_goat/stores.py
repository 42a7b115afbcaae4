raise ImportError("torch_goat.stores moved out of the package; copy examples/postgres/postgres_store instead.")
