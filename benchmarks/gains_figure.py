"""The picture on the first page: gains of the soup over as many steps of cross-entropy (`results/transfer`).

python benchmarks/gains_figure.py        # writes docs/images/gains.svg
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIGURE = ROOT / "docs" / "images" / "gains.svg"
ROW, LEFT, WIDTH, SCALE = 22, 170, 720, 12  # pixels; the last per 0.001
COLORS = {"partial AUC (FPR up to 0.1)": "#2f6fb0", "average precision": "#e08a2e"}
CELL = re.compile(r"([+-][\d.]+)(?: \(([\d.]+)\))?")


def gains():
    """For each data set the gains in both metrics and their standard errors, in thousandths."""
    page = (ROOT / "results" / "transfer" / "README.md").read_text(encoding="utf-8")
    lines = page[page.index("| data set | seeds | CE average, pAUC |") :].split("\n\n")[0].splitlines()[2:]
    found = {}
    for line in lines:
        cells = [cell.strip().strip("*") for cell in line.strip("|").split("|")]
        parts = (CELL.match(cell) for cell in cells[3:5])
        found[cells[0]] = [(float(part[1]), float(part[2] or 0)) for part in parts if part]
    return found


def figure():
    """The figure as SVG."""
    rows = gains()
    zero = LEFT + 20 * SCALE
    height = ROW * len(rows) + 74
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f"<title>Gains of the soup over as many steps of cross-entropy, on {len(rows) - 1} data sets</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        '<text x="16" y="24" font-size="14" font-weight="600" fill="#1c1c1c">mmb train --method soup '
        "minus as many steps of cross-entropy, on test rows</text>",
    ]
    for place, (name, color) in enumerate(COLORS.items()):
        parts.append(f'<rect x="{LEFT + 210 * place}" y="34" width="12" height="12" fill="{color}"/>')
        parts.append(f'<text x="{LEFT + 18 + 210 * place}" y="45" fill="#1c1c1c">{name}</text>')
    for tick in (-20, -10, 0, 10, 20):
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
        for place, ((value, error), color) in enumerate(zip(values, COLORS.values(), strict=True)):
            x, width = zero + min(value, 0) * SCALE, abs(value) * SCALE
            top = y + 3 + 8 * place
            parts.append(f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="7" fill="{color}"/>')
            low, high = (zero + (value + sign * error) * SCALE for sign in (-1, 1))
            line = f'x1="{low:.1f}" y1="{top + 3.5}" x2="{high:.1f}" y2="{top + 3.5}"'
            parts.append(f'<line {line} stroke="#1c1c1c" stroke-opacity="0.55"/>')
    text = "\n".join([*parts, "</svg>"]) + "\n"
    assert not re.search("nan", text)
    return text


if __name__ == "__main__":
    FIGURE.parent.mkdir(exist_ok=True)
    FIGURE.write_text(figure(), encoding="utf-8")
