"use strict";
// What the live page, the pages of stories and their reports draw with; it stands in front of their own.

function html(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("data-") || key.startsWith("aria-") || key === "scope") element.setAttribute(key, value);
    else element[key] = value;
  }
  element.append(...children);
  return element;
}

function svg(name, attributes, parent, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  if (parent) parent.append(element);
  return element;
}

// A colour for each leader epoch, light enough for dark figures; PALE is above the high watermark.
const PALE = 0.3;
const epochColour = (epoch, alpha = 1) => `hsl(${(205 + epoch * 137.5) % 360} 62% 72% / ${alpha})`;
