// Return every text whose contrast with its ground is below 4.5, as "ratio selector text".
() => {
  const parse = (colour) => {
    const [r, g, b, a = 1] = colour.match(/[\d.]+/g).map(Number);
    const scale = colour.startsWith("color(srgb") ? 255 : 1;
    return { r: r * scale, g: g * scale, b: b * scale, a };
  };
  const over = (top, ground) => Object.fromEntries(["r", "g", "b"].map((c) => [c, top[c] * top.a + ground[c] * (1 - top.a)]));
  const ground = (element) => {
    if (!element) return { r: 255, g: 255, b: 255 };
    const colour = parse(getComputedStyle(element).backgroundColor);
    return colour.a === 1 ? colour : over(colour, ground(element.parentElement));
  };
  const light = ({ r, g, b }) => {
    const [x, y, z] = [r, g, b].map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.data.trim();
    const style = getComputedStyle(element);
    const skip = !text || element.closest(".word, svg, .skip, meter, [aria-hidden=true]") || style.visibility === "hidden";
    if (skip) continue;
    const back = ground(element);
    const colour = parse(element.closest("svg") ? style.fill : style.color);
    colour.a *= Number(style.opacity);
    const [a, b] = [light(over(colour, back)), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found.push(`${ratio.toFixed(2)} ${element.tagName}.${element.className} ${text.slice(0, 30)}`);
  }
  return [...new Set(found)];
};
