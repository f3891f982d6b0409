"""How a module is run for a comparison: dropouts replayed, autocast as on CUDA, targets made."""
