"""How far the rule gets (docs/defaults.md): studies of pictures, made on a GPU; every run is a line of results."""
