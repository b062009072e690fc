"""What the site adds to the pages: the command reference, the file tree, and files that pages link to.

`python docs/hooks.py` writes the file tree into docs/architecture.md.
"""

import ast
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from confrank.cli.app import reference

DOCS = Path(__file__).parent
REPOSITORY = DOCS.parent
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)]*)?\)")
TREE = re.compile(r"^confrank/\n.*?(?=^```$)", re.MULTILINE | re.DOTALL)
# The tree follows the data, from logits to reports; other files come after these.
ORDER = (
    "confidence history distributed indexed forms loss metrics scores data models method_facts methods recipes"
    " provenance runs training classify_images predictions analysis decisions ood"
    " active research study report adapters cli config environment errors files extension spreadsheet"
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the command reference, and what pages link to outside of docs/ (benchmarks, results, examples)."""
    files.append(File.generated(config, "reference/commands.md", content=reference()))
    for path in sorted(linked_files()):
        name = path.relative_to(REPOSITORY).as_posix()
        files.append(File.generated(config, f"repository/{name}", abs_src_path=str(path)))
    return files


def linked_files() -> set[Path]:
    """The files outside of docs/ that pages link to, and those that these link to in turn."""
    linked: set[Path] = set()
    pending = list(DOCS.rglob("*.md"))
    while pending:
        new = links_out(pending.pop()) - linked
        linked |= new
        pending += [path for path in new if path.suffix == ".md"]
    return linked


def links_out(page: Path) -> set[Path]:
    """The files outside of docs/ that a page links to."""
    targets = {
        (page.parent / match[1]).resolve() for match in LINK.finditer(page.read_text()) if "://" not in match[1]
    }
    return {path for path in targets if path.is_file() and not path.is_relative_to(DOCS)}


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links that leave docs/ to the copies in the site, and show the tree as it is now, as a table."""
    if page.file.src_uri == "architecture.md":
        markdown = re.sub(f"^```text\n{TREE.pattern}```$", lambda _: table(), markdown, flags=TREE.flags)
    folder, depth = (DOCS / page.file.src_uri).parent, page.file.src_uri.count("/")

    def inside(match: re.Match[str]) -> str:
        path = (folder / match[1]).resolve()
        if "://" in match[1] or not path.is_file() or path.is_relative_to(DOCS):
            return match[0]
        return f"]({'../' * depth}repository/{path.relative_to(REPOSITORY).as_posix()}{match[2] or ''})"

    return LINK.sub(inside, markdown)


def tree() -> str:
    """Every file of the package with the first line of its docstring, as text."""
    lines = ["confrank/"]
    for name, first_line, files in contents():
        width = max([18, *(len(file) for file, _ in files)])
        lines.append(f"  {name:<20} {first_line}")
        lines += [f"    {file:<{width}} {text}" for file, text in files]
    return "\n".join(lines) + "\n"


def table() -> str:
    """The tree as a Markdown table, whose lines the site wraps."""
    lines = ["| file | first line |", "|---|---|"]
    for name, first_line, files in contents():
        lines.append(f"| **`{name}`** | **{first_line}** |" if files else f"| `{name}` | {first_line} |")
        lines += [f"| `{name}{file}` | {text} |" for file, text in files]
    return "\n".join(lines) + "\n"


def contents() -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Each file and package at the top: its name, its first line, and the same for the files of a package."""
    package, order = REPOSITORY / "confrank", ORDER.split()
    top = sorted(
        (path for path in package.iterdir() if listed(path)),
        key=lambda path: (order.index(path.stem) if path.stem in order else len(order), path.name),
    )
    found = []
    for path in top:
        inside = sorted(file for file in path.rglob("*") if file.is_file() and listed(file))
        names = [(file.relative_to(path).as_posix(), summary(file)) for file in inside if file.name != "__init__.py"]
        name, first = (f"{path.name}/", path / "__init__.py") if path.is_dir() else (path.name, path)
        found.append((name, summary(first), names))
    return found


def listed(path: Path) -> bool:
    return "__pycache__" not in path.parts and (path.is_dir() or path.suffix != ".pyc")


def summary(path: Path) -> str:
    """The first line of a module's docstring; of other files, what they are."""
    others = {".csv": "the numbers of the paper's tables", ".html": "page template", ".css": "page style"}
    others |= {".js": "page script", ".typed": "marks the package as typed"}
    if path.suffix != ".py":
        return others.get(path.suffix, others.get(f".{path.name.split('.')[-1]}", ""))
    return (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")[0].rstrip(".")


if __name__ == "__main__":
    page = DOCS / "architecture.md"
    page.write_text(TREE.sub(lambda _: tree(), page.read_text()))
