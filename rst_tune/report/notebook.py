"""A search in a notebook: the whole page, in a frame that cannot touch the notebook."""

from rst_tune.analysis.records import Search
from rst_tune.report import page
from rst_tune.report.words import escaped

__all__ = ["Shown", "show"]


class Shown:
    """A page that a notebook draws where it stands as the last value of a cell."""

    def __init__(self, html: str, height: int = 900) -> None:
        self.html, self.height = html, height

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{self.height}px;border:0"
        return (
            f'<iframe sandbox="allow-scripts" title="rst_tune" style="{style}" srcdoc="{escaped(self.html)}"></iframe>'
        )

    def __repr__(self) -> str:
        return f"Shown({len(self.html):,} characters of HTML)"


def show(search: Search, height: int = 900) -> Shown:
    """Return the page of a search for the end of a notebook's cell."""
    return Shown(page.render(search), height)
