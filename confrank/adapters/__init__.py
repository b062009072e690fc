"""confrank in other frameworks; a module named after a framework needs the extra of that name."""
