"""From a plan to text. A template has loops and flags; everything else is decided here."""
