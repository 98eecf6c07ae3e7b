"""The picture on the first page: what ranking objectives gain over cross-entropy, from `results/transfer`.

python benchmarks/gains_figure.py        # writes docs/images/gains.svg
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIGURE = ROOT / "docs" / "images" / "gains.svg"
ROW, LEFT, WIDTH, SCALE = 22, 170, 720, 10  # pixels; the last per 0.001
COLORS = {"pairwise": "#2f6fb0", "MMB-pAUC": "#e08a2e"}


def gains():
    """For each data set the gain in partial AUC of both objectives, in thousandths, from the table."""
    page = (ROOT / "results" / "transfer" / "README.md").read_text(encoding="utf-8")
    lines = page[page.index("| data set | seeds | CE, pAUC |") :].split("\n\n")[0].splitlines()[2:]
    found = {}
    for line in lines:
        cells = [cell.strip().strip("*") for cell in line.strip("|").split("|")]
        found[cells[0]] = [float(cell.split(",")[0]) for cell in cells[3:5]]
    return found


def figure():
    """The figure as SVG."""
    rows = gains()
    zero = LEFT + 16 * SCALE
    height = ROW * len(rows) + 74
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="13">',
        "<title>Gain in partial AUC over cross-entropy on thirteen data sets</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        '<text x="16" y="24" font-size="14" font-weight="600" fill="#1c1c1c">Partial AUC (FPR up to 0.1) '
        "minus that of cross-entropy: same network, rows, steps</text>",
    ]
    for place, (name, color) in enumerate(COLORS.items()):
        parts.append(f'<rect x="{LEFT + 140 * place}" y="34" width="12" height="12" fill="{color}"/>')
        parts.append(f'<text x="{LEFT + 18 + 140 * place}" y="45" fill="#1c1c1c">{name}</text>')
    for tick in (-10, 0, 10, 20, 30):
        x = zero + tick * SCALE
        parts.append(f'<line x1="{x}" y1="54" x2="{x}" y2="{height - 20}" stroke="#d0d0d0"/>')
        parts.append(
            f'<text x="{x}" y="{height - 5}" text-anchor="middle" fill="#555">{tick / 1000:+.2f}</text>'
        )
    for row, (name, values) in enumerate(rows.items()):
        y = 56 + ROW * row
        weight = ' font-weight="700"' if name == "mean" else ""
        parts.append(
            f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end" fill="#1c1c1c"{weight}>{name}</text>'
        )
        for place, (value, color) in enumerate(zip(values, COLORS.values(), strict=True)):
            x, width = zero + min(value, 0) * SCALE, abs(value) * SCALE
            top = y + 3 + 8 * place
            parts.append(f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="7" fill="{color}"/>')
    text = "\n".join([*parts, "</svg>"]) + "\n"
    assert not re.search("nan", text)
    return text


if __name__ == "__main__":
    FIGURE.parent.mkdir(exist_ok=True)
    FIGURE.write_text(figure(), encoding="utf-8")
