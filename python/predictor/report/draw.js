// A figure is drawn when it is first seen: a hidden one has no width to fit into, and a page may hold a hundred.
const byTouch = matchMedia("(hover: none)").matches;
const NARROW = 480;  // pixels
const read = id => JSON.parse(document.getElementById(id).textContent);
const {theme, shared} = read("common");
function draw(place) {
  if (place.dataset.drawn) return;
  place.dataset.drawn = "yes";
  const figure = read(place.id + "-figure");
  for (const trace of figure.data) if (typeof trace.x === "number") trace.x = shared[trace.x];
  figure.layout.template = theme;
  if (place.clientWidth < NARROW) figure.layout.xaxis.nticks = 4;  // where ticks are named one by one it says nothing
  if (byTouch) figure.layout.dragmode = false;  // a finger on a figure scrolls the page
  Plotly.newPlot(place, figure.data, figure.layout,
    {displaylogo: false, responsive: true, displayModeBar: byTouch ? false : "hover", modeBarButtonsToRemove: ["select2d", "lasso2d"]});
}
const seen = new IntersectionObserver(entries => {
  for (const entry of entries) if (entry.isIntersecting) { seen.unobserve(entry.target); draw(entry.target); }
}, {rootMargin: "600px"});
const places = document.querySelectorAll(".plotly-graph-div");
places.forEach(place => seen.observe(place));
// One drawn before the window changed while it was hidden is fitted when it is shown again.
const fit = () => window.dispatchEvent(new Event("resize"));
document.querySelectorAll(".pick").forEach(pick => pick.addEventListener("change", fit));
window.addEventListener("toggle", fit, true);
window.addEventListener("beforeprint", () => { document.body.classList.add("whole-page"); places.forEach(draw); });
window.addEventListener("afterprint", () => document.body.classList.remove("whole-page"));
