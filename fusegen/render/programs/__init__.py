"""Programs as C++ structs, and the interface of their launchers."""
