// Small plots, as SVG without a library. Each has its figures as a text too.
import { el, svg, set, exactly, number, counted, clock } from './text.js';

// columns returns the path of a column for each value, as parts of the height.
function columns(values, top, base, height) {
  let path = '';
  values.forEach((v, i) => {
    if (v === 0) return;
    const h = Math.max(1, (v / top) * height), from = height - (base ? (base[i] / top) * height : 0);
    path += `M${i + 0.1},${from.toFixed(2)}v${(-h).toFixed(2)}h.8v${h.toFixed(2)}z`;
  });
  return path;
}

// A perSecond plot shows a count of each second. Pointing at it reads a second.
export class PerSecond {
  constructor(place, noun) {
    this.noun = noun;
    this.svg = svg('svg', { viewBox: '0 0 120 40', preserveAspectRatio: 'none', role: 'img', class: noun });
    this.path = this.svg.appendChild(svg('path'));
    this.most = el('span');
    this.read = el('span', { class: 'read' });
    place.append(el('div', { class: 'scale' }, this.most, this.read), this.svg,
      el('div', { class: 'scale' }, el('span', {}, '2 minutes ago'), el('span', {}, 'now')));
    this.svg.addEventListener('pointermove', (e) => {
      const box = this.svg.getBoundingClientRect();
      this.at = Math.floor(((e.clientX - box.left) / box.width) * this.values.length);
      this.point();
    });
    this.svg.addEventListener('pointerleave', () => {
      this.at = null;
      this.point();
    });
  }

  draw(from, values) {
    this.from = from;
    this.values = values;
    const most = Math.max(...values, 0);
    this.svg.setAttribute('viewBox', `0 0 ${values.length} 40`);
    this.path.setAttribute('d', columns(values, Math.max(most, 1), null, 40));
    set(this.most, most ? `peak ${exactly(most)}` : '');
    const total = values.reduce((a, b) => a + b, 0);
    this.svg.setAttribute('aria-label', total === 0 ? `No request was ${this.noun} in the last 2 minutes.`
      : `${counted(total, 'request')} ${this.noun} in the last 2 minutes, at most ${exactly(most)} in a second, at ${clock((from + values.indexOf(most)) * 1000)}.`);
    this.point();
  }

  point() {
    const value = this.at == null ? undefined : this.values[this.at];
    set(this.read, value === undefined ? '' : `${clock((this.from + this.at) * 1000)}: ${exactly(value)}`);
  }
}

// sparkline returns a plot of pairs of admitted and refused requests. update draws it.
export function sparkline() {
  const s = svg('svg', { class: 'spark', viewBox: '0 0 30 20', preserveAspectRatio: 'none', role: 'img' });
  s.append(svg('path', { class: 'admitted' }), svg('path', { class: 'refused' }));
  return s;
}

export function drawSpark(s, pairs) {
  const admitted = pairs.map((p) => p[0]), refused = pairs.map((p) => p[1]);
  const most = Math.max(1, ...pairs.map((p) => p[0] + p[1]));
  s.setAttribute('viewBox', `0 0 ${Math.max(1, pairs.length)} 20`);
  s.children[0].setAttribute('d', columns(admitted, most, null, 20));
  s.children[1].setAttribute('d', columns(refused, most, admitted, 20));
  s.setAttribute('aria-label', `At most ${number(Math.max(0, ...admitted))} admitted and ${number(Math.max(0, ...refused))} refused in 10 seconds.`);
}

export const modeWords = {
  exact: 'by the store', overflow: 'by quotas that new clients share', remembered: 'refused from memory, as the store had refused',
  local: 'by this process alone', allowed: 'admitted without the store', refused: 'refused without the store',
  exempt: 'exempt', barred: 'banned',
};

// A Timeline shows the worst mode of each part of the last hour, or since the start.
export class Timeline {
  constructor(place) {
    this.svg = svg('svg', { preserveAspectRatio: 'none', role: 'img', class: 'timeline' });
    this.from = el('span');
    this.list = el('p', { class: 'dim outages' });
    place.append(this.svg, el('div', { class: 'scale' }, this.from, el('span', {}, 'now')), this.list);
  }

  draw({ modes: periods, at: now, since, unavailable, outage: last }) {
    const minutes = Math.min(60, Math.max(10, Math.ceil((now - since) / 60000))), long = minutes * 60;
    const end = now / 1000, start = end - long;
    const shown = periods.filter((p) => p.to > start);
    this.svg.setAttribute('viewBox', `0 0 ${long} 40`);
    this.svg.replaceChildren(...shown.map((p) => {
      const from = Math.max(p.from, start);
      return svg('rect', { x: from - start, y: 0, width: Math.max(long / 200, Math.min(p.to, end) - from), height: 40, class: `mode-${p.mode}` });
    }));
    set(this.from, `${minutes} minutes ago`);
    const within = (p, at) => (p.from * 1000 <= at && at < p.to * 1000 ? at : 0); // slots of 10 seconds know less than the latest outage
    const text = shown.filter((p) => outage(p.mode)).map((p) => `${clock(within(p, last.since) || p.from * 1000, now)} to ${
      p.to >= end - 10 && unavailable ? 'now' : clock(within(p, last.until) || Math.min(p.to * 1000, now), now)}, ${modeWords[p.mode]}`);
    set(this.list, text.length ? `Without the store: ${text.slice(-3).join('; ')}` : '');
    this.svg.setAttribute('aria-label', periods.length === 0 ? `No decisions in the last ${minutes} minutes.`
      : text.length === 0 ? `No decision of the last ${minutes} minutes was made without the store.` : `Decisions without the store in the last ${minutes} minutes: ${text.join('; ')}.`);
  }
}

export const outage = (mode) => mode === 'local' || mode === 'allowed' || mode === 'refused';
