"""Every page in a real browser, at 390 and 1280 pixels, light and dark.

no fault           no error of a script, nothing that the page's policy forbids
no overflow        the body is not scrolled sideways; wide tables are, in frames of their own
contrast           text has at least 4.5:1 on its background (WCAG AA; 3:1 if it is large)
names              every control and landmark has an accessible name, and no two have the same
a verdict          the first thing below the heading
"""

from collections import Counter
from pathlib import Path
from typing import Any, Final

from tests.cli.live_browser import LiveBrowser

WIDE: Final = 1280
PHONE: Final = 390
NAMED: Final = frozenset(
    [
        "button",
        "checkbox",
        "combobox",
        "searchbox",
        "slider",
        "textbox",
        "link",
        "region",
        "navigation",
        "figure",
        "group",
        "DisclosureTriangle",
    ]
)

# Colours are read where text is drawn; what lies behind it is the nearest background that is opaque.
CONTRASTS: Final = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const over = (colour, below) => {
    canvas.clearRect(0, 0, 1, 1);
    if (below) { canvas.fillStyle = `rgb(${below.join(",")})`; canvas.fillRect(0, 0, 1, 1); }
    canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    const chain = [];
    for (let each = element; each; each = each.parentElement) chain.push(each);
    let colour = [255, 255, 255], opacity = 1;
    for (const each of chain.reverse()) {
      colour = over(getComputedStyle(each).backgroundColor, colour);
      opacity *= Number(getComputedStyle(each).opacity);
    }
    return [colour, opacity];
  };
  const poor = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.textContent.trim() || parent.closest("script, style, .js-plotly-plot, .unseen, .skip, [hidden], :disabled")) continue;
    if (!parent.checkVisibility({ visibilityProperty: true }) || !parent.getClientRects().length) continue;
    const style = getComputedStyle(parent), isDrawn = parent instanceof SVGElement;
    let [below, opacity] = behind(parent);
    if (isDrawn) { // a figure stands on its record
      const { left, width, top, height } = parent.getBoundingClientRect(), x = left + width / 2, y = top + height / 2;
      for (const rect of parent.ownerSVGElement.querySelectorAll("rect")) {
        const box = rect.getBoundingClientRect(), fill = getComputedStyle(rect).fill;
        const isBelow = box.left <= x && x <= box.right && box.top <= y && y <= box.bottom;
        if (isBelow && !fill.startsWith("url") && fill !== "none") below = over(fill, below);
      }
    }
    const ink = over(isDrawn ? style.fill : style.color, below).map((v, i) => v * opacity + below[i] * (1 - opacity));
    const [light, dark] = [luminance(ink), luminance(below)].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05), size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) poor.add(`${ratio.toFixed(2)} "${node.textContent.trim().slice(0, 40)}" in ${parent.tagName}.${parent.className.baseVal ?? parent.className}`);
  }
  return [...poor];
})()"""


def check_looks(browser: LiveBrowser, pictures: Path | None = None) -> None:
    """Check the page that is open on each screen; leave pictures of them if a folder is given."""
    papers = set()
    for width in (WIDE, PHONE):
        for dark in (False, True):
            browser.show_as(width=width, dark=dark)
            if pictures is not None:
                browser.picture(pictures / f"{width}-{'dark' if dark else 'light'}.png")
            root = "document.documentElement"
            wide = browser.ask(f"[{root}.scrollWidth, innerWidth]")
            assert wide[0] <= wide[1] <= width, ("the body is scrolled sideways", wide)
            poor = browser.ask(CONTRASTS)
            assert not poor, (width, dark, poor)
            papers.add(browser.ask("getComputedStyle(document.body).backgroundColor"))
    assert len(papers) == 2, "the dark is another colour"
    assert names_of(browser), "there is something to be named"
    assert unnamed_or_twice(browser) == []
    assert browser.complaints == []
    verdict = browser.ask("document.querySelector('#verdict').innerText")
    assert verdict.startswith(("All is well: ", "Look here: ", "Something is wrong: ")), verdict
    assert browser.ask(
        "document.querySelector('#verdict').getBoundingClientRect().bottom + scrollY < 400"
    )


def names_of(browser: LiveBrowser) -> list[tuple[str, str]]:
    """Return the role and the accessible name of every control and landmark, as Chromium has them."""
    nodes: list[dict[str, Any]] = browser.call("Accessibility.getFullAXTree")["nodes"]
    found = [
        (each["role"]["value"], each.get("name", {}).get("value", "").strip())
        for each in nodes
        if not each.get("ignored") and "role" in each
    ]
    return [each for each in found if each[0] in NAMED and (each[1] or each[0] != "group")]


def unnamed_or_twice(browser: LiveBrowser) -> list[tuple[str, str]]:
    counts = Counter(names_of(browser))
    return [each for each, count in counts.items() if count > 1 or not each[1]]
