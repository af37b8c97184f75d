// An audit of a page: returns what is wrong with it for people who use a keyboard or a
// screen reader, or see little contrast.
(() => {
  const wrong = [];
  const shown = (e) => e.checkVisibility({ visibilityProperty: true }) && e.getClientRects().length > 0;
  const path = (e) => e.tagName.toLowerCase() + (e.id ? '#' + e.id : e.className && typeof e.className === 'string' ? '.' + e.className.trim().replaceAll(/\s+/g, '.') : '');
  const name = (e) => {
    const by = (e.getAttribute('aria-labelledby') || '').split(/\s+/).map((id) => document.getElementById(id)?.textContent || '').join(' ').trim();
    const labels = [...(e.labels || [])].map((l) => l.textContent).join(' ').trim();
    return by || (e.getAttribute('aria-label') || '').trim() || labels || (e.matches('button, a, h1, h2, h3, th, legend') ? e.textContent.trim() : '');
  };
  const all = (selector) => [...document.querySelectorAll(selector)].filter(shown);
  const modal = document.querySelectorAll('dialog:modal');
  const top = modal.length ? modal[modal.length - 1] : document.body;

  if (!document.documentElement.lang) wrong.push('no language');
  if (!document.title) wrong.push('no title');
  if (document.querySelectorAll('main').length !== 1) wrong.push('not one main landmark');
  if (all('h1').length !== 1) wrong.push('not one h1');
  const ids = new Set();
  for (const { id } of document.querySelectorAll('[id]')) {
    if (ids.has(id)) wrong.push(`two elements have the id ${id}`);
    ids.add(id);
  }
  for (const attribute of ['aria-labelledby', 'aria-describedby', 'aria-controls', 'for', 'list']) {
    for (const e of document.querySelectorAll(`[${attribute}]`)) {
      for (const id of e.getAttribute(attribute).split(/\s+/)) if (!ids.has(id)) wrong.push(`${path(e)}: ${attribute} names no element: ${id}`);
    }
  }
  let level = 0;
  for (const h of all('h1, h2, h3, h4')) {
    const now = Number(h.tagName[1]);
    if (now > level + 1) wrong.push(`${h.textContent}: h${now} after h${level}`);
    level = now;
  }
  for (const e of all('button, a[href], input, select, textarea, [role=img], section, nav, dialog, table, fieldset')) {
    const legend = e.matches('fieldset') ? e.querySelector('legend')?.textContent : '';
    if (!(name(e) || legend || (e.caption && e.caption.textContent))) wrong.push(`${path(e)}: no name`);
  }
  for (const table of all('table')) {
    for (const th of table.querySelectorAll('th')) if (!th.scope) wrong.push(`${path(table)}: a header without scope: ${th.textContent}`);
    if (!table.tHead) wrong.push(`${path(table)}: no head`);
    const columns = table.tHead ? table.tHead.rows[0].cells.length : 0;
    for (const row of table.querySelectorAll('tbody tr')) {
      if (row.cells.length !== columns && !row.querySelector('[colspan]')) wrong.push(`${path(table)}: a row of ${row.cells.length} cells under ${columns} headers`);
      if (!row.querySelector('th, td')) wrong.push(`${path(table)}: an empty row`);
    }
  }
  for (const e of document.querySelectorAll('[tabindex]')) if (e.tabIndex > 0) wrong.push(`${path(e)}: tabindex ${e.tabIndex}`);
  for (const e of document.querySelectorAll('[onclick]')) wrong.push(`${path(e)}: an inline handler`);
  for (const e of all('div, span, tr, td, p, li')) if (getComputedStyle(e).cursor === 'pointer' && !e.closest('button, a, label')) wrong.push(`${path(e)}: to click, and no control`);
  for (const e of all('button, input, select')) {
    const box = e.getBoundingClientRect();
    if (top.contains(e) && box.width > 1 && getComputedStyle(e).opacity !== '0' && Math.max(box.width, box.height) < 16) wrong.push(`${path(e)}: too small: ${box.width} by ${box.height}`);
  }

  // Contrast, of all texts that show, over the backgrounds below them.
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].map((v, i) => (i === 3 ? v / 255 : v));
  };
  const over = (front, back) => front.slice(0, 3).map((v, i) => v * front[3] + back[i] * (1 - front[3]));
  const luminance = (c) => c.slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const background = (e) => {
    const layers = [];
    for (; e; e = e.parentElement) {
      const color = rgba(getComputedStyle(e).backgroundColor);
      if (color[3] > 0) layers.push(color);
      if (color[3] === 1) break;
    }
    return layers.reverse().reduce((back, front) => over(front, back), matchMedia('(prefers-color-scheme: dark)').matches ? [18, 18, 18] : [255, 255, 255]);
  };
  const check = (e, color, what) => {
    if (!top.contains(e) || e.closest(':disabled, .hidden, .skip')) return;
    const back = background(e), ink = rgba(color);
    for (let p = e; p; p = p.parentElement) ink[3] *= Number(getComputedStyle(p).opacity);
    const front = over(ink, back);
    const [high, low] = [luminance(front), luminance(back)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) wrong.push(`${path(e)} “${what.trim().slice(0, 40)}”: contrast ${ratio.toFixed(2)}`);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (walker.currentNode.data.trim() && shown(e)) check(e, getComputedStyle(e).color, walker.currentNode.data);
  }
  for (const e of all('input, select')) if (e.type !== 'radio') {
    check(e, getComputedStyle(e).color, e.value || 'a field');
    if (e.placeholder) check(e, getComputedStyle(e, '::placeholder').color, e.placeholder);
  }
  const wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) wrong.push(`the page is ${wide} wide in a window of ${innerWidth}`);
  return [...new Set(wrong)];
})();
