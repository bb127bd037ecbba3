// What is wrong with the page that this stands on, as sentences by kind; `look(width)` draws and opens all of it first.
const wrong = {};
const say = (kind, text) => { (wrong[kind] ??= []).push(text); };
const short = text => text.trim().replace(/\s+/g, " ").slice(0, 60);
const tag = element => `<${element.tagName.toLowerCase()}>`;
const shown = element => element.checkVisibility({visibilityProperty: true, opacityProperty: true}) && element.getClientRects().length > 0;

async function look(width) {
  window.dispatchEvent(new Event("beforeprint"));
  document.querySelectorAll("details").forEach(one => { one.open = true; });
  for (const _ of [1, 2]) await new Promise(requestAnimationFrame);
  lookAtWidth(width);
  lookAtNames();
  lookAtTargets();
  document.querySelectorAll(".plotly-graph-div").forEach(lookAtFigure);
  lookAtContrast();
  return wrong;
}

// --- no sideways scroll: what is too wide stands in a box of its own

function lookAtWidth(width) {  // not innerWidth: a phone widens its window to what is too wide
  if (document.documentElement.scrollWidth > width)
    say("width", `the page is ${document.documentElement.scrollWidth} px wide in a window of ${width}`);
  for (const element of document.querySelectorAll("main *:not(.plotly-graph-div *)")) {
    const right = element.getBoundingClientRect().right;
    if (right > width + 1 && shown(element) && !standsInABox(element))
      say("width", `${tag(element)} ends at ${Math.round(right)} px: ${short(element.textContent)}`);
  }
}

function standsInABox(element) {
  for (let up = element.parentElement; up; up = up.parentElement) if (getComputedStyle(up).overflowX !== "visible") return true;
  return false;
}

// --- names for those who cannot see

function lookAtNames() {
  const called = element => (element.getAttribute("aria-label") || "").trim();
  if (!document.documentElement.lang || !document.title.trim() || document.querySelectorAll("h1").length !== 1)
    say("names", "the page needs a language, a title and one h1");
  const named = {
    "table": one => called(one) || one.caption,
    ".plotly-graph-div, svg:not(.plotly-graph-div svg, #js-plotly-tester)": one => one.getAttribute("role") === "img" && called(one),
    ".scroll": one => called(one) && one.tabIndex === 0,
    "img": one => one.alt.trim(),
    "audio": called,
    "input:not([type=hidden])": one => called(one) || one.labels.length,
  };
  for (const [chosen, test] of Object.entries(named))
    for (const one of document.querySelectorAll(chosen))
      if (!one.closest("[aria-hidden=true]") && !test(one)) say("names", `${tag(one)} has no name: ${short(one.textContent)}`);
}

// --- room for fingers (WCAG 2.2, 2.5.8)

function lookAtTargets() {
  for (const one of document.querySelectorAll("summary, .picks label, button, a[href], audio")) {
    const height = one.getBoundingClientRect().height;
    if (shown(one) && height < 24) say("targets", `${Math.round(height)} px high: ${short(one.textContent)}`);
  }
}

// --- figures are drawn, and what is written in them is whole

function lookAtFigure(place) {
  if (!place.querySelector(".main-svg")) { say("figures", `${place.id} is not drawn`); return; }
  const box = place.getBoundingClientRect();
  for (const text of place.querySelectorAll(".xtick text, .x2tick text, .ytick text, .legendtext, .xtitle, .ytitle, .cbtitle text")) {
    const at = text.getBoundingClientRect();
    if (at.left < box.left - 1 || at.right > box.right + 1) say("figures", `${place.id}: cut off: ${text.textContent}`);
  }
  const below = [...place.querySelectorAll(".xtick text, .x2tick text")].map(one => [one.getBoundingClientRect(), one]).sort((a, b) => a[0].left - b[0].left);
  for (const [k, [at, text]] of below.entries()) {
    if (Math.abs(text.getCTM().b) > 0.01) say("figures", `${place.id}: rotated: ${text.textContent}`);
    if (k && at.left < below[k - 1][0].right) say("figures", `${place.id}: overlaps the one before: ${text.textContent}`);
  }
}

// --- contrast of 4.5 (WCAG 2.2, 1.4.3)

function lookAtContrast() {
  const grounds = new Map(), texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(element.tagName) || !shown(element)) continue;
    const style = getComputedStyle(element), figure = element.closest(".plotly-graph-div");
    let paint = colour(element instanceof SVGElement ? style.fill : style.color);
    if (figure && getComputedStyle(figure).filter.startsWith("invert(1)")) paint = inverted(paint);
    const around = figure || element;
    if (!grounds.has(around)) grounds.set(around, ground(around));
    const found = contrast(over(paint, grounds.get(around)), grounds.get(around));
    if (found < 4.5) say("contrast", `${found.toFixed(2)} in ${tag(element)}: ${short(texts.currentNode.data)}`);
  }
  return wrong;
}

const brush = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
const colours = new Map();
function colour(text) {  // [r, g, b, a] of what CSS calls a colour
  if (!colours.has(text)) {
    brush.clearRect(0, 0, 1, 1);
    brush.fillStyle = text;
    brush.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = brush.getImageData(0, 0, 1, 1).data;
    colours.set(text, [r, g, b, a / 255]);
  }
  return colours.get(text);
}

function ground(element) {  // what lies below its text
  const layers = [];
  for (let up = element; up; up = up.parentElement) {
    const paint = colour(getComputedStyle(up).backgroundColor);
    if (paint[3] > 0) layers.push(paint);
    if (paint[3] === 1) break;
  }
  return layers.reduceRight((below, top) => over(top, below), [255, 255, 255, 1]);
}

const over = (top, below) => [0, 1, 2].map(k => top[k] * top[3] + below[k] * (1 - top[3])).concat(1);

function inverted([r, g, b, a]) {  // invert(1) hue-rotate(180deg)
  const [x, y, z] = [255 - r, 255 - g, 255 - b];
  const turned = [-0.574 * x + 1.43 * y + 0.144 * z, 0.426 * x + 0.43 * y + 0.144 * z, 0.426 * x + 1.43 * y - 0.856 * z];
  return turned.map(value => Math.min(255, Math.max(0, value))).concat(a);
}

function luminance(paint) {
  const [r, g, b] = paint.map(value => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a, b) {
  const [darker, lighter] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (lighter + 0.05) / (darker + 0.05);
}
