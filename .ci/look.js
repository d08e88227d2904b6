// Returns what is wrong with the page that is open. `.ci/look.py` runs it, as the body of a function.
const [phone, dark, wholeCode] = arguments;
const wrong = [];
const styleOf = x => getComputedStyle(x);
const shown = x => (x.textContent || x.src || x.tagName).trim().replace(/\s+/g, " ").slice(0, 60);
const scrolls = x => x && (["auto", "scroll", "hidden"].includes(styleOf(x).overflowX) || scrolls(x.parentElement));

if (document.documentElement.scrollWidth > innerWidth + 1) wrong.push("the page is wider than the window");
for (const x of document.images) if (!x.naturalWidth && x.loading !== "lazy") wrong.push("missing picture " + x.src);

// Text. Tables and code may scroll in their own box, but the arguments of an operator are on the screen.
for (const x of document.querySelectorAll("article :is(p, li, dt, h1, h2, h3, td, th)")) {
  if (!x.clientWidth || styleOf(x).display === "inline") continue;
  if (x.scrollWidth > x.clientWidth + 1 && (x.closest("td, th") || !scrolls(x))) wrong.push("text wider than its box: " + shown(x));
  const beyond = x.getBoundingClientRect().right > innerWidth + 1;
  if (beyond && (x.closest(".arguments") || !scrolls(x))) wrong.push("off the screen: " + shown(x));
}

// Code.
for (const x of document.querySelectorAll("article pre")) {
  if (!["auto", "scroll"].includes(styleOf(x).overflowX)) wrong.push("code that does not scroll: " + shown(x));
  const hidden = x.scrollWidth - x.clientWidth;
  if (hidden > 1 && wholeCode && !phone && !dark) {
    const longest = x.textContent.split("\n").reduce((a, b) => (b.length > a.length ? b : a));
    wrong.push(`code ${hidden} px wider than its box: ${longest.trim()}`);
  }
  const isCode = x.parentElement.matches(".highlight") && !x.closest(".output, .highlight-text");
  if (isCode && !x.parentElement.querySelector("button.copybtn")) wrong.push("code without a copy button: " + shown(x));
}

// Colours are [red, green, blue, opacity]. The contrast is WCAG's, with what lies behind an element.
const parse = text => {
  const [red, green, blue, opacity = 1] = text.match(/[\d.]+/g).map(Number);
  return [red, green, blue, opacity];
};
const over = (top, below) => [0, 1, 2].map(k => top[k] * top[3] + below[k] * (1 - top[3]));
const luminance = color => {
  const [red, green, blue] = color.map(v => v / 255).map(v => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const contrast = (a, b) => {
  const [dim, bright] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (bright + 0.05) / (dim + 0.05);
};
const known = new Map();
const behind = x => {
  if (!x) return [255, 255, 255];
  if (!known.has(x)) {
    const color = parse(styleOf(x).backgroundColor);
    known.set(x, color[3] === 1 ? color.slice(0, 3) : over(color, behind(x.parentElement)));
  }
  return known.get(x);
};

if ((luminance(behind(document.querySelector("article"))) < 0.1) !== dark) wrong.push(`the page is not ${dark ? "dark" : "light"}`);
for (const x of document.querySelectorAll("article *, .sidebar-tree *")) {
  const hasText = [...x.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.textContent.trim());
  if (!hasText || !x.getClientRects().length || x.closest("svg, button, script, style") || x.matches(".headerlink")) continue;
  const found = contrast(over(parse(styleOf(x).color), behind(x)), behind(x));
  if (found < 3) wrong.push(`a contrast of ${found.toFixed(1)}: ${shown(x)}`);
}

// A drawing that one can see through is made for white paper.
const isClear = picture => {
  const canvas = document.createElement("canvas");
  const size = (canvas.width = canvas.height = 32);
  const context = canvas.getContext("2d");
  context.drawImage(picture, 0, 0, size, size);
  const opacities = context.getImageData(0, 0, size, size).data.filter((_, k) => k % 4 === 3);
  return opacities.filter(v => v < 200).length > (size * size) / 10;
};
for (const x of document.querySelectorAll("article img, article .cell_output svg")) {
  if (luminance(behind(x)) > 0.8 || !x.getBoundingClientRect().width) continue;
  if (x.tagName !== "IMG" || (x.naturalWidth && isClear(x))) wrong.push("a drawing on a dark background: " + shown(x));
}
return [...new Set(wrong)];
