"""What MkDocs does to the pages: adds those that stand elsewhere, and fills in what code says.

Every page is a file that reads well in the repository, where its links lead to files as well. A
line `{{ name }}` in it stands for what the function of that name in `reference` returns.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import reference

ROOT = Path(__file__).parents[2]

# Files outside docs/, by their names in the site.
ELSEWHERE = {
    "architecture.md": "ARCHITECTURE.md",
    "contributing.md": "CONTRIBUTING.md",
    "figures/flame.svg": "web/public/flame.svg",
}

LINE = re.compile(r"^\{\{ (\w+) \}\}$", re.MULTILINE)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files that stand elsewhere in the repository."""
    for name, source in ELSEWHERE.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Fill in what code says, and let links lead to pages instead of files."""

    def filled(match: re.Match[str]) -> str:
        function = getattr(reference, match[1], None)
        if function is None:
            raise PluginError(f"{page.file.src_uri}: there is no `{match[1]}` in reference.py")
        return str(function())

    name = page.file.src_uri
    at = ELSEWHERE.get(name, f"docs/{name}")
    parts = CODE.split(markdown)
    parts[::2] = [_with_links_to_pages(text, name, at) for text in parts[::2]]
    return LINE.sub(filled, "".join(parts))


def _with_links_to_pages(text: str, page: str, file: str) -> str:
    """Rewrite the links of `text`, from those between files to those between pages.

    What is not in the site becomes its text: where the repository is on the web, it does not know.
    """
    pages = {source: name for name, source in ELSEWHERE.items()}

    def rewritten(match: re.Match[str]) -> str:
        mark, label, target, anchor = match.groups(default="")
        if "://" in target:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(file), target))
        where = pages.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
        if where is None:
            return label
        relative = posixpath.relpath(where, posixpath.dirname(page))
        return f"{mark}[{label}]({relative}{anchor})"

    return LINK.sub(rewritten, text)
