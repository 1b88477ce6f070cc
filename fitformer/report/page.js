// Draws the charts. Figures are JSON beside them; a colour that is the name of a CSS variable is looked up, so that
// charts follow the light and dark scheme.
(() => {
  "use strict";
  if (typeof Plotly === "undefined") return;

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const isColour = (key, value) => /color$/.test(key) && typeof value === "string" && value.startsWith("--");
  const coloured = (value, key = "") => {
    if (isColour(key, value)) return css(value);
    if (Array.isArray(value)) return value.map((item) => coloured(item, key));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, coloured(item, name)]));
  };

  // On a touch screen a finger scrolls the page and taps points; it does not zoom by accident.
  const touch = matchMedia("(pointer: coarse)");
  const narrow = matchMedia("(max-width: 36rem)");

  const axis = (own) => ({
    gridcolor: css("--rule"),
    linecolor: css("--rule"),
    zeroline: false,
    automargin: true,
    fixedrange: touch.matches,
    ...own,
    title: { standoff: 10, ...own.title },
  });

  const layout = (own) => ({
    ...own,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: css("--sans"), size: narrow.matches ? 12 : 13, color: css("--ink-soft") },
    margin: { l: 12, r: 12, t: 8, b: 12 },
    hovermode: "closest",
    dragmode: touch.matches ? false : "zoom",
    hoverlabel: {
      align: "left",
      bgcolor: css("--raised"),
      bordercolor: css("--rule"),
      font: { family: css("--sans"), size: 12, color: css("--ink") },
    },
    legend: { orientation: "h", x: 0, y: 1.01, yanchor: "bottom", font: { color: css("--ink") } },
    xaxis: axis(own.xaxis),
    yaxis: axis(own.yaxis),
  });

  const charts = [...document.querySelectorAll(".chart")].map((holder) => {
    const data = holder.querySelector('script[type="application/json"]');
    const canvas = holder.appendChild(document.createElement("div"));
    canvas.className = "canvas";
    return { canvas, figure: JSON.parse(data.textContent) };
  });

  const draw = () => {
    for (const { canvas, figure } of charts) {
      const own = coloured(figure);
      Plotly.react(canvas, own.data, layout(own.layout), { responsive: true, displayModeBar: false });
    }
  };

  draw();
  for (const query of [matchMedia("(prefers-color-scheme: dark)"), narrow, touch]) query.addEventListener("change", draw);
})();
