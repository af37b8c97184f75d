// The tables: policies, keys, refusals, bans and overrides.
import { Rows } from './rows.js';
import { sparkline, drawSpark, outage, modeWords } from './plots.js';
import { bar, byId, clock, counted, el, exactly, fill, number, percent, set, time, visible } from './text.js';

// name returns the text for a key, a hash of one, or no key.
export const name = (row) => (row.key ? visible(row.key) : row.id ? `#${row.id}` : 'all requests');

const identity = (...parts) => JSON.stringify(parts);

// count shows a number with all of its digits in the title.
function count(cell, n) {
  set(cell, number(n));
  cell.classList.toggle('zero', n === 0);
  if (n >= 1e5) cell.title = exactly(n);
  else cell.removeAttribute('title');
}

// used is a bar and its percentage.
function used() {
  const b = bar(), text = el('span', { class: 'percent' });
  return { element: el('div', { class: 'used' }, b, text), update(share) {
    fill(b, share);
    set(text, percent(share));
  } };
}

// policyRows returns the rows of a policy and its rules. choose shows the keys of the
// policy; inspect opens the inspector.
export function policyRows(table, choose, inspect) {
  return new Rows(table, (p) => p.name, (first) => {
    const button = el('button', { type: 'button', class: 'link text', 'aria-pressed': 'false', click: () => choose(first.name) }, visible(first.name));
    const returned = el('span', { class: 'under dim', title: 'admitted here, and then refused by an inner rule set' });
    const requests = el('td', { class: 'number' }), refused = el('td', { class: 'number refused' }), full = used(), spark = sparkline();
    const body = el('tbody', {}, el('tr', { class: 'policy' }, el('th', { scope: 'rowgroup' }, button, returned), requests, refused,
      el('td', {}, full.element), el('td', { class: 'wide' }, spark)));
    let rules = [], names = '';
    return { element: body, update(p) {
      count(requests, p.admitted + p.refused);
      count(refused, p.refused);
      set(returned, p.given_back ? `${number(p.given_back)} given back` : '');
      full.update(p.full);
      drawSpark(spark, p.spark);
      const now = identity(p.rules.map((r) => [r.name, r.text, r.shadow]));
      if (now !== names) {
        names = now;
        for (const r of rules) r.element.remove();
        rules = p.rules.map((r) => ruleRow(p.name, r, inspect));
        body.append(...rules.map((r) => r.element));
      }
      p.rules.forEach((r, i) => rules[i].update(r));
    } };
  });
}

function ruleRow(policy, rule, inspect) {
  const requests = el('td', { class: 'number' }), refused = el('td', { class: 'number refused' }), full = used();
  const button = el('button', { type: 'button', class: 'link text', click: () => inspect({ policy, rule: rule.name, keyed: rule.keyed }) }, visible(rule.name));
  const element = el('tr', { class: 'rule' },
    el('th', { scope: 'row' }, button, ' ', el('span', { class: 'dim text' }, visible(rule.text)), rule.shadow ? el('span', { class: 'tag' }, 'shadow') : null),
    requests, refused, el('td', {}, full.element), el('td', { class: 'wide' }));
  return { element, update(r) {
    count(requests, r.admitted + r.refused);
    count(refused, r.refused);
    full.update(r.full);
  } };
}

export function keyRows(body, inspect) {
  return new Rows(body, (k) => identity(k.policy, k.rule, k.key, k.id), (first) => {
    const button = el('button', { type: 'button', class: 'link text', click: () => inspect(first) }, name(first));
    const requests = el('td', { class: 'number' }), refused = el('td', { class: 'number refused' }), share = used();
    const element = el('tr', {}, el('th', { scope: 'row' }, button,
      el('span', { class: 'under dim text' }, `${visible(first.policy)} · ${visible(first.rule)}`)), refused, requests, el('td', {}, share.element));
    return { element, update(k) {
      count(requests, k.requests);
      count(refused, k.refused);
      share.update(k.used);
      element.title = `${exactly(k.remaining)} of ${exactly(k.capacity)} left at ${clock(k.last)}`;
    } };
  });
}

export function refusalRows(body, inspect) {
  return new Rows(body, (r) => r.n, (r) => {
    const keys = r.rules.map((rule) => el('button', { type: 'button', class: 'link text',
      click: () => inspect({ policy: r.policy, rule: rule.name, key: rule.key, id: rule.id }) }, name(rule)));
    const tags = [];
    if (r.outcome !== 'refused') tags.push(el('span', { class: 'tag' }, visible(r.outcome)));
    if (outage(r.mode)) tags.push(el('span', { class: 'tag warn', title: modeWords[r.mode] }, `decided ${visible(r.mode)}`));
    const element = el('tr', {}, el('td', {}, time(r.at)), el('td', {}, el('div', { class: 'reason' },
      el('span', {}, el('span', { class: 'strong text' }, visible(r.policy)), ...tags), el('span', { class: 'keys' }, ...keys), el('span', { class: 'text' }, visible(r.words)))));
    return { element, update() {} };
  });
}

// lists shows bans and overrides, with what the viewer may do and why not.
export class Lists {
  constructor(lift, remove) {
    this.cannot = {};
    this.bans = new Rows(byId('bans').createTBody(), (b) => identity(b.entry, b.id), (first) => {
      let now = first;
      return this.row(['th', visible(first.entry || `#${first.id}`)], 'ban', 'Lift…', () => lift(now), (b) => {
        now = b;
        return { texts: [until(b.until)], note: byAndWhy(b) };
      });
    });
    this.overrides = new Rows(byId('overrides').createTBody(), (o) => identity(o.policy, o.rule, o.key, o.id), (first) => {
      let now = first;
      return this.row(['th', name(first), `${visible(first.policy)} · ${visible(first.rule)}`], 'override', 'Remove…', () => remove(now), (o) => {
        now = o;
        return { texts: [exactly(o.limit), until(o.until)], note: byAndWhy(o) };
      });
    });
  }

  row([tag, title, under], action, verb, act, cells) {
    const note = el('span', { class: 'under dim text' });
    const head = el(tag, { scope: 'row' }, el('span', { class: 'text' }, title), under ? el('span', { class: 'under dim text' }, under) : null, note);
    const button = el('button', { type: 'button', class: 'quiet', 'aria-label': `${verb.slice(0, -1)} ${action} of ${title}`, click: act }, verb);
    const element = el('tr', {}, head);
    return { element, update: (item) => {
      const { texts, note: said } = cells(item);
      set(note, said);
      while (element.cells.length < texts.length + 2) element.insertCell();
      texts.forEach((text, i) => {
        set(element.cells[i + 1], text);
        element.cells[i + 1].className = action === 'override' && i === 0 ? 'number' : 'text';
      });
      const last = element.cells[texts.length + 1];
      const can = !this.cannot[action];
      if (can !== (button.parentNode === last)) last.replaceChildren(...(can ? [button] : []));
    } };
  }

  show(s) {
    this.cannot = s.cannot;
    this.bans.show(s.bans);
    this.overrides.show(s.overrides);
    empty('bans', s.bans_total, s.bans.length, s.cannot.ban, 'No client is banned.');
    empty('overrides', s.overrides_total, s.overrides.length, s.cannot.override, 'No key has a limit of its own. Inspect a key to give it one.');
    byId('ban').hidden = Boolean(s.cannot.ban);
  }
}

const byAndWhy = (item) => `by ${[item.by, item.reason].filter(Boolean).map(visible).join(': ')}`;

const until = (ms) => (ms === 0 ? 'removed' : clock(ms));

function empty(id, total, listed, why, none) {
  byId(id).hidden = total === 0;
  const note = byId(`${id}-empty`);
  const parts = [total === 0 && !why ? none : '', total > listed ? `${counted(total - listed, 'more is', 'more are')} not shown.` : '', why || ''];
  set(note, parts.filter(Boolean).join(' '));
  note.hidden = note.textContent === '';
}
