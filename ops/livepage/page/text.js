// Texts and elements. Keys, names and reasons come from clients, so nothing here or
// elsewhere parses HTML.

const invisible = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;

// visible writes characters that do not show, or change the order of others, as escapes.
export function visible(text) {
  return String(text).replace(invisible, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

// el returns an element. Attributes that are functions are listeners; children that are
// no elements are text.
export function el(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') e.addEventListener(name, value);
    else if (value !== false && value != null) e.setAttribute(name, value);
  }
  e.append(...children.filter((c) => c != null));
  return e;
}

export function svg(tag, attributes = {}) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  return e;
}

export const byId = (id) => document.getElementById(id);

// set changes a text only if it differs, so that a selection in it stays.
export function set(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const one = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

export const number = (n) => (n < 1e5 ? whole.format(n) : compact.format(n));
export const rate = (n) => (n < 100 ? one.format(n) : number(n));
export const exactly = (n) => whole.format(n);

// percent rounds down, so that only a full quota is at 100 %.
export const percent = (share) => `${Math.floor(share * 100 + 1e-6)} %`;

// counted returns a number with its noun.
export const counted = (n, noun, plural = `${noun}s`) => `${exactly(n)} ${n === 1 ? noun : plural}`;

// clock returns the time of day, with the date if it is another day.
export function clock(ms, now = Date.now()) {
  const at = new Date(ms);
  const time = at.toLocaleTimeString('en-GB');
  if (at.toDateString() === new Date(now).toDateString()) return time;
  return `${at.toLocaleDateString('en-CA')} ${time}`;
}

// time returns an element for a moment.
export function time(ms, now) {
  const valid = Math.abs(ms) < 8.64e15;
  return el('time', valid ? { datetime: new Date(ms).toISOString() } : {}, valid ? clock(ms, now) : 'unknown');
}

// A bar shows a share from 0 to 1. Its text is beside it.
export function bar() {
  return el('div', { class: 'bar', 'aria-hidden': 'true' }, el('span'));
}

export function fill(bar, share) {
  bar.firstChild.style.transform = `scaleX(${Math.min(1, Math.max(0, share))})`;
  bar.dataset.level = share >= 1 ? 'full' : share >= 0.8 ? 'high' : '';
}

// address returns the address of a request beside the page. A page that is opened with a
// name and a password has them in the base of its addresses, and fetch refuses those.
export function address(path) {
  const url = new URL(path, location.href);
  url.username = url.password = '';
  return url.href;
}
