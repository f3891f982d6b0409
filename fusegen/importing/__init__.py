"""From an nn.Module to a spec: traced by torch.export, matched with the catalogue, written, and compared.

Needs torch. Runs the user's module and nothing else; what a chain cannot say is refused with the line of their source.
"""
