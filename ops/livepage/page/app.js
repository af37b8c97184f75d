// The live page: it follows the events of the server and shows each state.
import { Confirmation, Inspector, ban, lift, remove } from './inspector.js';
import { PerSecond, Timeline, modeWords, outage } from './plots.js';
import { Lists, keyRows, policyRows, refusalRows } from './tables.js';
import { address, byId, clock, counted, el, exactly, number, percent, rate, set, visible } from './text.js';

const pageRows = 10, shortRows = 12;
const view = { q: '', sort: 'refused', offset: 0, policy: '', order: 'refusals' };
let state = null, source = null, retry = 0, lastData = 0, asked = false;

const confirmation = new Confirmation();
const inspector = new Inspector(confirmation);
const inspect = (row) => inspector.open(row);
const plots = { admitted: new PerSecond(byId('admitted-plot'), 'admitted'), refused: new PerSecond(byId('refused-plot'), 'refused'), modes: new Timeline(byId('timeline')) };
const tables = {
  policies: policyRows(byId('policies'), (name) => look({ policy: view.policy === name ? '' : name }), inspect),
  keys: keyRows(byId('keys').createTBody(), inspect),
  refusals: refusalRows(byId('refusals').createTBody(), inspect),
  lists: new Lists((b) => confirmation.open(lift(b, (said) => announce(said))), (o) => confirmation.open(remove(o, (said) => announce(said)))),
};

// announce tells screen readers, and shows the text for a while if nothing else does.
let silence = 0;
function announce(text, shown = true) {
  const a = byId('announcer');
  set(a, visible(text));
  a.className = shown ? 'notice text' : 'hidden';
  clearTimeout(silence);
  silence = setTimeout(() => { a.className = 'hidden'; }, 8000);
}

// look changes the view, and asks the server for it.
function look(change) {
  Object.assign(view, change);
  connect();
}

function connect() {
  clearTimeout(retry);
  source?.close();
  asked = true;
  const url = address(`events?${new URLSearchParams({ ...view, limit: pageRows })}`);
  const events = source = new EventSource(url);
  events.addEventListener('state', (e) => {
    lastData = Date.now();
    state = JSON.parse(e.data);
    show(state);
  });
  events.addEventListener('replaced', () => {
    if (events !== source) return;
    events.close();
    source = null; // it connects again when somebody comes back to it
    disconnected('Newer pages of yours took its place', 'Come back to this page or reload it to connect again.');
  });
  events.addEventListener('error', (e) => {
    if (events !== source) return;
    disconnected(e.data ? reason(e.data) : '');
    if (events.readyState === EventSource.CLOSED) refused(url);
  });
}

function reason(data) {
  try {
    return JSON.parse(data).error || '';
  } catch {
    return '';
  }
}

// refused asks why the server did not send events, since an EventSource does not say,
// and tries again.
async function refused(url) {
  const stop = new AbortController();
  let text = '';
  try {
    const response = await fetch(url, { signal: stop.signal, cache: 'no-store' });
    if (!response.ok) text = (await response.text()).slice(0, 400);
  } catch {
    // The server does not answer, which the banner says.
  }
  stop.abort();
  if (text) disconnected(reason(text) || text);
  clearTimeout(retry);
  retry = setTimeout(connect, 3000);
}

function disconnected(why, then = 'The page connects again by itself.') {
  const since = lastData ? ` The last data is of ${clock(lastData)}.` : '';
  banner('lost', 'Disconnected', `${visible(why || 'The server does not answer')}.${since} ${then}`.replace('..', '.'));
  connection('lost', 'Disconnected');
  document.body.classList.add('stale');
}

function connection(kind, text) {
  byId('connection').dataset.state = kind;
  set(byId('connection'), text);
}

let spoken = 'loading';
function banner(kind, title, text) {
  const b = byId('banner');
  b.dataset.kind = kind;
  set(b.firstElementChild, title);
  set(b.lastElementChild, text);
  if (kind === spoken) return; // the figures in it change each second
  if (spoken !== 'loading' || kind !== 'healthy') announce(`${title}. ${text}`, false);
  spoken = kind;
}

function show(s) {
  document.body.classList.remove('stale');
  document.title = `Limits · ${visible(s.instance)}`;
  set(byId('instance'), visible(s.instance));
  set(byId('who'), `${visible(s.who)} (${s.role})`);
  connection('live', `Live ${clock(s.at, s.at)}`);
  health(s);
  overview(s);
  inspector.know(s);
  showPolicies(s);
  showKeys(s);
  showRefusals(s);
  tables.lists.show(s);
  footer(s);
  asked = false;
}

// health says in words whether the limiter works.
function health(s) {
  const counts = Object.entries(s.mode_counts), all = counts.reduce((n, [, c]) => n + c, 0);
  const without = exactly(counts.filter(([mode]) => outage(mode)).reduce((n, [, c]) => n + c, 0));
  const { since, until, owed, lost, doubted } = s.outage, recent = (at, minutes) => s.at - at < 60000 * minutes;
  const units = counted(owed, 'unit');
  if (s.unavailable) {
    const owes = owed ? ` When it answers, this instance charges it for the ${units} that it admitted.` : '';
    return banner('outage', 'The store is unavailable', `Since ${clock(since, s.at)}, each rule decides as its on-error says. Decisions without the store in the last 5 minutes: ${without}.${owes}`);
  }
  const own = recent(doubted, 24 * 60) ? ` Since ${clock(doubted, s.at)}, and for a window of each rule, this instance also refuses by its own counts.` : '';
  if (owed) {
    return banner('paying', 'The store is available again', `This instance charges it for ${units} of the outage, and may refuse what other instances admit until then.${own}`);
  }
  if (recent(until, 5)) {
    return banner('recovered', 'The store is available again', `Requests were decided without it from ${clock(since, s.at)} to ${clock(until, s.at)}: ${without} in the last 5 minutes.${lost >= since ? ` It lost data, which was noticed at ${clock(lost, s.at)}, and was charged for what this instance had counted.` : ''}${own || ' It alone decides now.'}`);
  }
  if (own) return banner('recovered', 'The store works', own.trim());
  if (without !== '0') return banner('recovered', 'The store works', `Decisions without it in the last 5 minutes: ${without}. The log says why.`);
  if (all === 0 && s.modes.length === 0) return banner('idle', 'No decision yet', 'Send a request to a limited route. It appears here within a second.');
  const waiting = s.waiters ? ` ${counted(s.waiters, 'request waits', 'requests wait')} for room.` : '';
  return banner('healthy', 'Healthy', `No decision of the last 5 minutes was made without the store.${waiting}`);
}

function overview(s) {
  const { from, admitted, refused } = s.seconds, now = s.now;
  set(byId('admitted'), rate(now.admitted_per_second));
  set(byId('refused'), rate(now.refused_per_second));
  const sum = (list) => list.reduce((a, b) => a + b, 0), all = sum(admitted) + sum(refused);
  set(byId('share'), all ? ` · ${(100 * sum(refused) / all).toFixed(1)} % of 2 minutes` : '');
  plots.admitted.draw(from, admitted);
  plots.refused.draw(from, refused);
  plots.modes.draw(s);
  const counts = Object.entries(s.mode_counts).filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1]);
  byId('modes').replaceChildren(...(counts.length ? counts.map(([mode, n]) => el('span', { class: 'mode', title: modeWords[mode] || mode },
    el('i', { class: `mode-${mode}` }), el('b', {}, number(n)), ` ${mode === 'barred' ? 'banned' : mode}`)) : ['none in the last 5 minutes']));
}

function showPolicies(s) {
  const p = s.policies;
  if (p.rows.length === 0 && p.offset > 0 && p.matching > 0) return look({ offset: 0 }); // fewer match than before
  tables.policies.show(p.rows, asked);
  for (const [name, row] of tables.policies.rows) row.element.querySelector('.link').setAttribute('aria-pressed', String(name === view.policy));
  byId('policies').hidden = p.rows.length === 0;
  const none = byId('policies-empty');
  none.hidden = p.rows.length > 0;
  set(none, p.total === 0 ? 'No policy yet. Attach rules to a route: they appear at once.' : `None of ${counted(p.total, 'policy', 'policies')} has “${visible(view.q)}” in its name.`);
  const more = p.offset + p.rows.length < p.matching, pager = byId('pager');
  set(byId('policies-about'), `Figures are of the last 5 minutes. A bar shows the fullest key of the last 20 seconds${s.unavailable ? ' that the store decided: what keys use now is not known' : ''}.${p.unlisted ? ` ${counted(p.unlisted, 'request')} of further policies not listed.` : ''}`);
  pager.hidden = p.matching <= p.rows.length && p.offset === 0;
  set(byId('range'), `${exactly(Math.min(p.offset + 1, p.matching))}–${exactly(p.offset + p.rows.length)} of ${exactly(p.matching)}`);
  byId('previous').disabled = p.offset === 0;
  byId('next').disabled = !more;
}

function showKeys(s) {
  tables.keys.show(s.keys.slice(0, shortRows), asked);
  byId('keys').hidden = s.keys.length === 0;
  byId('keys-empty').hidden = s.keys.length > 0;
  const filter = byId('filter');
  filter.hidden = view.policy === '';
  set(filter.firstElementChild, `Keys of ${visible(view.policy)}`);
}

function showRefusals(s) {
  const missed = tables.refusals.show(s.refusals.slice(0, open ? 50 : shortRows), asked);
  const held = byId('refusals-held');
  held.hidden = missed === 0;
  set(held, `${missed} newer, shown when you leave the list`);
  byId('refusals').hidden = s.refusals.length === 0;
  byId('refusals-empty').hidden = s.refusals.length > 0;
  all.hidden = s.refusals.length <= shortRows;
}

// The log is short unless somebody wants all of it.
let open = false;
const all = el('button', { type: 'button', class: 'quiet', 'aria-expanded': 'false', 'aria-controls': 'refusals', click: () => {
  open = !open;
  all.setAttribute('aria-expanded', String(open));
  set(all, open ? 'Show fewer' : 'Show up to 50');
  asked = true;
  showRefusals(state);
  asked = false;
} }, 'Show up to 50');
byId('refusals-empty').after(el('div', { class: 'foot', id: 'refusals-foot' }, all));

function footer(s) {
  const parts = [`This instance counts its own decisions, since ${clock(s.since, s.at)}.`];
  if (s.reserved) parts.push(`${counted(s.reserved, 'reservation')}, ${exactly(s.settled)} settled.`);
  parts.push(`${counted(s.viewers, 'viewer')} now.`);
  set(byId('footer'), parts.join(' '));
}

// sortBy marks the column that the policies are sorted by.
function sortBy(column) {
  for (const th of document.querySelectorAll('#policies [data-sort]')) {
    if (th.dataset.sort === column) th.setAttribute('aria-sort', column === 'name' ? 'ascending' : 'descending');
    else th.removeAttribute('aria-sort');
  }
  look({ sort: column, offset: 0 });
}

for (const th of document.querySelectorAll('#policies [data-sort]')) th.firstElementChild.addEventListener('click', () => sortBy(th.dataset.sort));
let typing = 0;
byId('search').addEventListener('input', (e) => {
  clearTimeout(typing);
  typing = setTimeout(() => look({ q: e.target.value.trim(), offset: 0 }), 250);
});
byId('previous').addEventListener('click', () => look({ offset: Math.max(0, view.offset - pageRows) }));
byId('next').addEventListener('click', () => look({ offset: state.policies.next || view.offset }));
byId('order').addEventListener('change', (e) => look({ order: e.target.value }));
byId('filter').querySelector('button').addEventListener('click', () => look({ policy: '' }));
byId('inspect').addEventListener('click', () => inspect());
byId('ban').addEventListener('click', () => confirmation.open(ban(null, (said) => announce(said))));

// A stream can end without an error, such as behind a proxy.
setInterval(() => {
  if (!document.hidden && lastData && Date.now() - lastData > 6000 && source?.readyState === EventSource.OPEN) {
    disconnected('No data has come for some seconds');
    connect();
  }
}, 2000);

// A browser has six connections to a server, and the server 64 viewers: a page that
// nobody sees gives its stream back.
let away = 0;
document.addEventListener('visibilitychange', () => {
  clearTimeout(away);
  if (document.hidden) {
    away = setTimeout(() => {
      clearTimeout(retry);
      source?.close();
      source = null;
    }, 30000);
  } else if (source === null) connect();
});

connect();
