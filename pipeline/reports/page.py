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
import plotly.offline

from replication.observe.pages import WORDS, PageVerdict, base_style

MOST_BARS: Final = 60
# More rows than this nobody reads; JSON and Parquet have them all.
MOST_ROWS: Final = 1000

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


def page(title: str, verdict: PageVerdict, summary: str, body: Iterable[str]) -> str:
    """Return the whole file: a heading, the verdict, a sentence below it, and the parts."""
    parts = list(body)
    has_plots = any('class="plot"' in part for part in parts)
    script = f"<script>{_RECOLOUR}</script>" if has_plots else ""
    program = f"<script>{plotly.offline.get_plotlyjs()}</script>" if has_plots else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_style()}</style>{program}</head><body><main>"
        f"<h1>{escape(title)}</h1>{_verdict(verdict)}"
        f'<p class="faint">{escape(summary)}</p>{"".join(parts)}</main>{script}</body></html>\n'
    )


def _style() -> str:
    own = importlib.resources.files(__package__).joinpath("page.css").read_text()
    return base_style() + own


def _verdict(verdict: PageVerdict) -> str:
    text = f"<b>{WORDS[verdict.level]}:</b> {escape(verdict.text)}"
    return f'<p class="verdict {verdict.level}" id="verdict">{text}</p>'


def heading(text: str, *, level: int = 2) -> str:
    return f"<h{level}>{escape(text)}</h{level}>"


def paragraph(text: str, kind: str = "faint") -> str:
    return f'<p class="{kind}">{escape(text)}</p>'


def tiles(facts: Sequence[tuple[str, str, str]]) -> str:
    """Return the numbers to see first: value, what it is, and "good", "bad" or nothing."""
    boxes = (
        f'<div class="tile"><b class="{kind}">{escape(value)}</b><span>{escape(what)}</span></div>'
        for value, what, kind in facts
    )
    return f'<div class="tiles">{"".join(boxes)}</div>'


def table(name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table with an accessible name; numbers are aligned to the right, None is a dash.

    A table that is wider than the screen is scrolled by itself, also with the keyboard.
    """
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
    frame = f'<div class="wide" tabindex="0" role="region" aria-label="{escape(name)}">'
    return f"{frame}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def plot(figure: go.Figure, *, name: str, number: int, height: int) -> str:
    """Return a plot with an accessible name; `number` is another one for each plot of a page."""
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
        include_plotlyjs=False,
        config=_CONFIG,
        div_id=f"plot-{number}",
    )
    return f'<div class="plot" role="figure" aria-label="{escape(name)}">{drawn}</div>'


def details(summary: str, lines: Iterable[str]) -> str:
    text = "\n".join(lines)
    return f"<details><summary>{escape(summary)}</summary><pre>{escape(text)}</pre></details>"


def folded(summary: str, parts: Iterable[str]) -> str:
    return f"<details><summary>{escape(summary)}</summary>{''.join(parts)}</details>"


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
