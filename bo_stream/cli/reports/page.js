"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)").matches;
  const charts = [...document.querySelectorAll(".chart")];

  // "@c0/0.2" is the page's colour --c0 with that opacity, light or dark as the reader has it.
  const painted = (value, css) => {
    if (Array.isArray(value)) return value.map((v) => painted(v, css));
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, painted(v, css)]));
    const found = typeof value === "string" && value.match(/^@(\w+)(?:\/([\d.]+))?$/);
    if (!found) return value;
    const hex = css.getPropertyValue("--" + found[1]).trim();
    const parts = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
    return `rgba(${parts.join(",")},${found[2] ?? 1})`;
  };

  const axis = (own, css) => ({
    gridcolor: css.getPropertyValue("--grid").trim(),
    linecolor: css.getPropertyValue("--line").trim(),
    zeroline: false, showline: true, automargin: true, exponentformat: "power", minexponent: 4,
    ...own, title: { text: own?.title ?? "", standoff: 8, font: { size: 13 } },
  });

  const draw = async (chart) => {
    const said = JSON.parse(document.getElementById(chart.id + "-data").textContent);
    const css = getComputedStyle(document.documentElement);
    const { xaxis, yaxis, ...rest } = said.layout;
    const layout = painted({
      ...rest, xaxis: axis(xaxis, css), yaxis: axis(yaxis, css), autosize: true, showlegend: false,
      margin: { l: 55, r: 12, t: 10, b: 45 }, dragmode: touch ? false : "zoom",
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "closest",
      font: { family: "system-ui, sans-serif", size: 12, color: "@ink" },
    }, css);
    const traces = painted(said.traces, css);
    const hidden = chart.dataset.hidden ? chart.dataset.hidden.split(" ") : [];
    for (const trace of traces) if (hidden.includes(trace.legendgroup)) trace.visible = false;
    await Plotly.react(chart, traces, layout, { responsive: true, displayModeBar: false });
  };

  const drawAll = async () => { for (const chart of charts) await draw(chart); };

  const library = async () => {
    const packed = atob(document.getElementById("plotly").textContent);
    const bytes = Uint8Array.from(packed, (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
  };

  for (const button of document.querySelectorAll(".legend button"))
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") === "false";
      button.setAttribute("aria-pressed", String(on));
      const legend = button.closest(".legend");
      const hidden = [...legend.querySelectorAll("[aria-pressed=false]")].map((b) => b.value);
      const panels = document.getElementById(legend.dataset.panels);
      for (const chart of panels.querySelectorAll(".chart")) {
        chart.dataset.hidden = hidden.join(" ");
        draw(chart);
      }
    });

  const giveUp = (why) => {
    for (const chart of charts) if (chart.firstElementChild?.tagName === "P")
      chart.firstElementChild.textContent = why;
  };

  if (!charts.length) return;
  if (typeof DecompressionStream === "undefined")
    return giveUp("This browser is too old to draw this figure.");
  library().then(() => {
    for (const chart of charts) chart.replaceChildren();
    return drawAll();
  }).then(() => {
    document.documentElement.dataset.drawn = charts.length;
    dark.addEventListener("change", drawAll);
  }).catch((error) => {
    giveUp("This figure could not be drawn.");
    throw error;
  });
})();
