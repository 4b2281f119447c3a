"""The frame of every report: one HTML file with its style, its plots and their program inside.

Rule 1: text comes from logs, topics and files with names of others: all of it is escaped.

Rule 2: colours follow the browser's scheme. Tables and text do so by CSS; a script recolours
plots on load and whenever the scheme changes.
"""

import html
import importlib.resources
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import plotly.graph_objects as go
import plotly.io

MOST_BARS: Final = 60

# Dragging zooms and a double click goes back; the row of buttons would cover the plot.
_CONFIG: Final = {"responsive": True, "displayModeBar": False}

_RECOLOUR: Final = """
(() => {
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const recolour = () => {
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink").trim();
    const grid = style.getPropertyValue("--grid").trim();
    for (const plot of document.querySelectorAll(".js-plotly-plot")) {
      Plotly.relayout(plot, {
        "font.color": ink, "xaxis.gridcolor": grid, "yaxis.gridcolor": grid,
        "xaxis.zerolinecolor": grid, "yaxis.zerolinecolor": grid,
      });
    }
  };
  scheme.addEventListener("change", recolour);
  addEventListener("load", () => {
    recolour();
    document.querySelectorAll(".js-plotly-plot").forEach((plot) => Plotly.Plots.resize(plot));
  });
})();
"""


def escape(text: object) -> str:
    return html.escape(str(text))


def page(title: str, summary: str, body: Iterable[str]) -> str:
    """Return the whole file: a heading, a sentence below it, and the parts."""
    parts = list(body)
    has_plots = any('class="plot"' in part for part in parts)
    script = f"<script>{_RECOLOUR}</script>" if has_plots else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_style()}</style></head><body>"
        f'<h1>{escape(title)}</h1><p class="faint">{escape(summary)}</p>'
        f"{''.join(parts)}{script}</body></html>\n"
    )


def _style() -> str:
    # On a cluster, this package is in a zip.
    return importlib.resources.files(__package__).joinpath("page.css").read_text()


def heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str, kind: str = "faint") -> str:
    return f'<p class="{kind}">{escape(text)}</p>'


def tiles(facts: Sequence[tuple[str, str, str]]) -> str:
    """Return the numbers to see first: value, what it is, and "good", "bad" or nothing."""
    boxes = (
        f'<div class="tile"><b class="{kind}">{escape(value)}</b><span>{escape(what)}</span></div>'
        for value, what, kind in facts
    )
    return f'<div class="tiles">{"".join(boxes)}</div>'


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; numbers are aligned to the right, and None is a dash."""
    made = [list(row) for row in rows]
    numeric = [
        all(isinstance(row[i], int | float) or row[i] is None for row in made) and bool(made)
        for i in range(len(columns))
    ]
    head = "".join(_cell("th", name, is_number=n) for name, n in zip(columns, numeric, strict=True))
    body = "".join(
        "<tr>"
        + "".join(_cell("td", v, is_number=n) for v, n in zip(row, numeric, strict=True))
        + "</tr>"
        for row in made
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def plot(figure: go.Figure, *, number: int, height: int) -> str:
    """Return a plot; number 0 of a page includes the program that draws all plots."""
    figure.update_layout(
        height=height,
        margin={"l": 8, "r": 8, "t": 36, "b": 8},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        font={"family": "system-ui, sans-serif", "size": 12},
    )
    figure.update_xaxes(automargin=True)
    figure.update_yaxes(automargin=True)
    drawn: str = plotly.io.to_html(
        figure,
        full_html=False,
        include_plotlyjs=number == 0,
        config=_CONFIG,
        div_id=f"plot-{number}",
    )
    return f'<div class="plot">{drawn}</div>'


def details(summary: str, lines: Iterable[str]) -> str:
    text = "\n".join(lines)
    return f"<details><summary>{escape(summary)}</summary><pre>{escape(text)}</pre></details>"


def utc(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def seconds(ms: int | None) -> str:
    """Format milliseconds for people to read."""
    if ms is None:
        return "never"
    return f"{ms:,} ms" if abs(ms) < 10_000 else f"{ms / 1000:,.1f} s"


def _cell(tag: str, value: Any, *, is_number: bool) -> str:
    kind = ' class="number"' if is_number else ""
    if value is None:
        text = "&ndash;"
    elif isinstance(value, int) and not isinstance(value, bool):
        text = f"{value:,}"
    else:
        text = escape(value)
    return f"<{tag}{kind}>{text}</{tag}>"
