"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function shown(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number") return String(value);
  return String(Number.isInteger(value) ? value : Number(value.toPrecision(4))).replace("-", "−");
}

/* ---- colours ---- */

const RAMP = ["#00224e", "#35456c", "#666970", "#948e77", "#c8b866", "#fee838"].map(rgb);  // cividis, for every eye

function rgb(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

function between(stops, at) {
  const position = Math.min(Math.max(at, 0), 1) * (stops.length - 1);
  const i = Math.min(Math.floor(position), stops.length - 2);
  return stops[i].map((value, k) => Math.round(value + (position - i) * (stops[i + 1][k] - value)));
}

const IN_THE_DARK = { "#000000": "#f2f2ee", "#882255": "#e0407f", "#332288": "#9a8cf0", "#0072b2": "#2f8fd8" };

function classColour(i) {
  const colour = data.palette[i % data.palette.length].toLowerCase();
  return (matchMedia("(prefers-color-scheme: dark)").matches && IN_THE_DARK[colour]) || colour;
}

const SHAPES = ["circle", "triangle", "square", "diamond"];  // of the first ten classes, the next ten, ...

function classShape(i) {
  return SHAPES[Math.floor(i / data.palette.length) % SHAPES.length];
}

function className(e, i) {
  return e.classes ? e.classes[i] : String(i);
}

const range = (values) => values.reduce(([low, high], v) => [Math.min(low, v), Math.max(high, v)], [Infinity, -Infinity]);
const fraction = (value, [low, high]) => (high > low ? (value - low) / (high - low) : 0.5);
