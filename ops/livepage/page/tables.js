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
    const idle = el('span', { class: 'tag' });
    const returned = el('span', { class: 'under dim', title: 'admitted here, and then refused by an inner rule set' });
    const requests = el('td', { class: 'number' }), refused = el('td', { class: 'number refused' }), full = used(), spark = sparkline();
    const body = el('tbody', {}, el('tr', { class: 'policy' }, el('th', { scope: 'rowgroup' }, button, idle, returned), requests, refused,
      el('td', {}, full.element), el('td', { class: 'wide' }, spark)));
    let rules = [], names = '';
    return { element: body, update(p) {
      count(requests, p.admitted + p.refused);
      count(refused, p.refused);
      idle.hidden = !p.idle;
      set(idle, p.idle > 1 ? `${p.idle} routes without a request yet` : 'no request yet');
      set(returned, p.given_back ? `${number(p.given_back)} given back` : '');
      full.update(p.full);
      drawSpark(spark, p.spark);
      const now = identity(p.rules.map((r) => [r.name, r.text, r.shadow]));
      if (now !== names) {
        names = now;
        for (const r of rules) r.element.remove();
        rules = p.idle ? [] : p.rules.map((r) => ruleRow(p.name, r, inspect)); // its name says the rules
        body.append(...rules.map((r) => r.element));
      }
      rules.forEach((row, i) => row.update(p.rules[i]));
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
  return new Rows(body, (k) => identity(k.per, k.key, k.id), (first) => {
    let now = first, of = '';
    const button = el('button', { type: 'button', class: 'link text', click: () => inspect(now) }, name(first));
    const places = el('span', { class: 'under' });
    const requests = el('td', { class: 'number' }), refused = el('td', { class: 'number refused' }), share = used();
    const element = el('tr', {}, el('th', { scope: 'row' }, button, places), refused, requests, el('td', {}, share.element));
    return { element, update(k) {
      now = k;
      const rules = [k, ...(k.more || [])];
      if (of !== (of = identity(rules.map((r) => [r.policy, r.rule])))) {
        places.replaceChildren(...rules.map((r) => el('button', { type: 'button', class: 'link dim text', click: () => inspect({ ...now, policy: r.policy, rule: r.rule }) },
          `${visible(r.policy)} · ${visible(r.rule)}`)));
      }
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
    this.bans = new Rows(byId('bans').createTBody(), (b) => identity(b.entry, b.policy, b.rule, b.key, b.id), (first) => {
      let now = first;
      return this.row(['th', first.rule ? name(first) : visible(first.entry || `#${first.id}`)], first.rule ? 'reset' : 'ban', 'Lift…', () => lift(now), (b) => {
        now = b;
        return { texts: [until(b.until)], note: b.rule ? `by ${visible(b.rule)} of ${visible(b.policy)}` : byAndWhy(b) };
      });
    });
    this.overrides = new Rows(byId('overrides').createTBody(), (o) => identity(o.policy, o.rule, o.key, o.id, o.pattern), (first) => {
      let now = first;
      return this.row(['th', name(first), `${first.pattern ? 'pattern · ' : ''}${visible(first.policy)} · ${visible(first.rule)}`], 'override', 'Remove…', () => remove(now), (o) => {
        now = o;
        return { texts: [exactly(o.limit), until(o.until)], note: byAndWhy(o) };
      });
    });
  }

  row([tag, title, under], action, verb, act, cells) {
    const note = el('span', { class: 'under dim text' });
    const head = el(tag, { scope: 'row' }, el('span', { class: 'text' }, title), under ? el('span', { class: 'under dim text' }, under) : null, note);
    const button = el('button', { type: 'button', class: 'quiet', 'aria-label': `${verb.slice(0, -1)} the ${action === 'override' ? action : 'ban'} of ${title}`, click: act }, verb);
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
