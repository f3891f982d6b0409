"""The names in the state_dict of a generated module whose original has its layers in submodules."""


class OriginalNames:
    """Reads and writes the original's names: its checkpoints fit, and those of this module fit it.

    Names of this module's own attributes are read, too. named_parameters() has these alone.
    """

    # By attribute: the path of the same in the original.
    _fusegen_paths = {}  # noqa: RUF012

    def state_dict(self, *arguments, **named):
        found = super().state_dict(*arguments, **named)
        prefix = arguments[1] if len(arguments) > 1 else named.get("prefix", "")
        if self._fusegen_paths:
            _rename(found, prefix, self._fusegen_paths)
            metadata = getattr(found, "_metadata", None)
            if metadata is not None:
                _rename(metadata, prefix, self._fusegen_paths)
        return found

    def _load_from_state_dict(self, state_dict, prefix, *others):
        if self._fusegen_paths:
            _rename(state_dict, prefix, {path: own for own, path in self._fusegen_paths.items()})
        super()._load_from_state_dict(state_dict, prefix, *others)


def _rename(entries, prefix, names):
    """Renames what is called so behind the prefix, and what lies below; the order stays."""
    items = [(key, value) for key, value in entries.items() if key.startswith(prefix)]
    for key, _ in items:
        del entries[key]
    for key, value in items:
        entries[prefix + _renamed(key[len(prefix) :], names)] = value


def _renamed(name, names):
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        found = names.get(".".join(parts[:end]))
        if found is not None:
            return ".".join([found, *parts[end:]])
    return name
