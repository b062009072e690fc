"""confrank inside other people's frameworks; each module needs the extra of its name."""
