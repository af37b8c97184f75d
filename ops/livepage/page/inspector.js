// The inspector of one key, and the confirmations of changes.
import { address, byId, el, exactly, fill, set, visible } from './text.js';
import { name } from './tables.js';

const periods = [[600, '10 minutes'], [3600, '1 hour'], [86400, '1 day'], [7 * 86400, '7 days'], [0, 'until removed']];

// An Unanswered is a request that the server did not answer. fetch throws a TypeError then,
// as for a fault of the page.
class Unanswered extends Error {}

async function ask(path, body) {
  const request = new Request(address(path), body === undefined ? { cache: 'no-store' }
    : { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
  let response, text;
  try {
    response = await fetch(request);
    text = await response.text();
  } catch (err) {
    throw new Unanswered(err.message);
  }
  let answer = {};
  try {
    answer = JSON.parse(text);
  } catch {
    answer.error = text.slice(0, 300);
  }
  if (!response.ok) throw new Error(answer.error || `status ${response.status}`);
  return answer;
}

const problem = (err) => (err instanceof Unanswered ? 'The server does not answer. Nothing is known to have changed.' : `Failed: ${err.message}`);

function say(status, text, failed) {
  set(status, visible(text));
  status.classList.toggle('failed', Boolean(failed));
}

// A Confirmation names what will happen, and does it if the operator agrees.
export class Confirmation {
  constructor() {
    this.dialog = byId('confirm');
    this.form = byId('confirm-form');
    this.dialog.querySelector('[data-close]').addEventListener('click', () => this.dialog.close());
    this.form.addEventListener('input', () => this.describe());
    this.form.addEventListener('submit', (e) => {
      e.preventDefault();
      this.agree();
    });
  }

  // open asks. A plan has a title, fields, a text made from their values, the word for
  // yes, the path and the body of the request, and what happens after it.
  open(plan) {
    this.plan = plan;
    set(byId('confirm-title'), plan.title);
    byId('confirm-fields').replaceChildren(...(plan.fields || []));
    set(byId('confirm-yes'), plan.yes);
    say(byId('confirm-status'), '');
    this.describe();
    this.dialog.showModal();
    (plan.fields?.length ? this.form.querySelector('input, select') : this.dialog.querySelector('[data-close]')).focus();
  }

  values() {
    return Object.fromEntries(new FormData(this.form));
  }

  describe() {
    set(byId('confirm-text'), this.plan.text(this.values()));
  }

  async agree() {
    const { plan } = this, yes = byId('confirm-yes');
    yes.disabled = true;
    say(byId('confirm-status'), 'Sending…');
    try {
      const { done } = await ask(plan.path, plan.body(this.values()));
      this.dialog.close();
      plan.done(done);
    } catch (err) {
      say(byId('confirm-status'), problem(err), true);
    }
    yes.disabled = false;
  }
}

const input = (label, attributes) => el('label', {}, `${label} `, el('input', { autocomplete: 'off', spellcheck: 'false', ...attributes }));

function period() {
  return el('label', {}, 'For how long ', el('select', { name: 'seconds' }, ...periods.map(([s, word]) => el('option', { value: s, ...(s === 3600 ? { selected: '' } : {}) }, word))));
}

const forPeriod = (seconds, end) => (Number(seconds) === 0 ? `until ${end}` : `for ${periods.find(([s]) => s === Number(seconds))[1]}`);

// lift and remove return the plans of the lists.
export const lift = (ban, done) => ({
  title: `Lift the ban of ${ban.rule ? name(ban) : visible(ban.entry || `#${ban.id}`)}?`, text: () => 'All instances serve its requests again within a second.', yes: 'Lift the ban', done,
  ...(ban.rule ? { path: 'reset', body: () => subject(ban) } : { path: 'unban', body: () => (ban.id ? { id: ban.id } : { entry: ban.entry }) }),
});

export const remove = (o, done) => ({
  title: `Remove the override of ${name(o)}?`, text: () => `${visible(o.rule)} of ${visible(o.policy)} has its declared limit again, on all instances within a second.`,
  yes: 'Remove the override', path: 'unoverride', body: () => ({ ...subject(o), pattern: o.pattern }), done,
});

export function ban(of, done) {
  const shown = of ? (of.id ? `#${of.id}` : of.kind === 'user' ? `user ${visible(of.key)}` : of.kind === 'ip' ? visible(of.key) : '') : '';
  return {
    title: 'Ban a client',
    fields: [input('Client', { name: 'entry', required: '', value: shown, maxlength: 1000, placeholder: '203.0.113.9, 2001:db8:1:2::/64, user alice' }), period(),
      input('Reason', { name: 'reason', maxlength: 1000, placeholder: 'shown in the list of bans' })],
    text: (v) => (v.entry ? `All instances refuse every request of ${visible(v.entry)} ${forPeriod(v.seconds, 'the ban is lifted')}.` : 'Write an address, a prefix, or user and a name.'),
    yes: 'Ban the client', path: 'ban', done,
    body: (v) => ({ ...(of && shown && v.entry === shown ? subject(of) : { entry: v.entry }), seconds: Number(v.seconds), reason: v.reason }),
  };
}

const override = (of, limit, done) => ({
  title: `Override the limit of ${name(of)}`,
  fields: [input('Limit', { name: 'limit', type: 'number', min: 1, step: 1, required: '', value: limit }), period(),
    ...(of.kind === 'ip' || of.kind === 'global' ? [] // whose keys are no text
      : [input('Or of all keys that match', { name: 'pattern', maxlength: 129, pattern: '[^*]+[*]', title: 'What the keys begin with, and a star: free-*', placeholder: 'free-*' })]),
    input('Reason', { name: 'reason', maxlength: 1000, placeholder: 'shown in the list of overrides' })],
  text: (v) => {
    const allows = `${visible(of.rule)} of ${visible(of.policy)} allows ${v.pattern ? `each key that matches ${visible(v.pattern)}` : name(of)}`;
    if (v.limit === '' || (!v.pattern && Number(v.limit) === limit)) return `${allows} ${v.pattern ? 'its limit' : exactly(limit)} now. Write another limit.`;
    return `${allows} ${exactly(v.limit)}${v.pattern ? '' : ` instead of ${exactly(limit)}`} ${forPeriod(v.seconds, 'the override is removed')}, on all instances.`;
  },
  yes: 'Override the limit', path: 'override', done,
  body: (v) => ({ ...(v.pattern ? { policy: of.policy, rule: of.rule, key: v.pattern, pattern: true } : subject(of)), limit: Number(v.limit), seconds: Number(v.seconds), reason: v.reason }),
});

const reset = (of, done) => ({
  title: `Reset ${name(of)}?`, text: () => `Its quota in ${visible(of.rule)} of ${visible(of.policy)} becomes full, for all plans. It does not ask again.`,
  yes: 'Reset the quota', path: 'reset', body: () => subject(of), done,
});

// subject names a key of a rule in a request.
function subject({ policy, rule, key, id }) {
  return id ? { policy, rule, id } : { policy, rule, key: key || '' };
}

// The Inspector shows the quota of one key, asks for it again while it is open, and
// offers the changes that the viewer may make.
export class Inspector {
  constructor(confirmation) {
    this.confirmation = confirmation;
    this.dialog = byId('inspector');
    this.form = byId('inspector-form');
    this.kinds = new Map();
    this.dialog.querySelector('[data-close]').addEventListener('click', () => this.dialog.close());
    this.dialog.addEventListener('close', () => clearTimeout(this.timer));
    this.form.elements.key.addEventListener('input', () => { this.chosen = null; });
    this.form.elements.policy.addEventListener('input', () => this.listRules());
    this.form.addEventListener('submit', (e) => {
      e.preventDefault();
      say(byId('inspector-status'), '');
      this.look();
    });
    for (const button of this.form.querySelectorAll('[data-act]')) button.addEventListener('click', () => this.act(button.dataset.act));
  }

  // know remembers the rules of a state, for the suggestions and for what a key is.
  know(s) {
    for (const p of s.policies.rows.filter((row) => !row.idle)) this.kinds.set(p.name, p.rules);
    while (this.kinds.size > 1000) this.kinds.delete(this.kinds.keys().next().value);
    for (const button of this.form.querySelectorAll('[data-act]')) button.hidden = Boolean(s.cannot[button.dataset.act]);
    const why = [...new Set(Object.values(s.cannot))].join(' ');
    set(byId('why'), why);
    byId('why').hidden = why === '';
  }

  // open shows the inspector for a row of a table, or empty.
  open(row = {}) {
    const f = this.form.elements;
    this.chosen = row.key || row.id ? row : null;
    f.policy.value = row.policy || '';
    f.rule.value = row.rule || '';
    f.key.value = this.chosen ? name(row) : '';
    f.plan.value = '';
    byId('peek').hidden = true;
    say(byId('inspector-status'), '');
    byId('policy-names').replaceChildren(...[...this.kinds.keys()].slice(0, 200).map((value) => el('option', { value })));
    this.listRules();
    this.dialog.showModal();
    if (row.rule && (this.chosen || row.keyed !== true)) this.look();
    else (row.rule ? f.key : f.policy).focus();
  }

  listRules() {
    const rules = this.kinds.get(this.form.elements.policy.value) || [];
    byId('rule-names').replaceChildren(...rules.map((r) => el('option', { value: r.name })));
  }

  // of returns the key that the fields name. That of a row is sent as it came, since a
  // field cannot hold all characters.
  of() {
    const f = this.form.elements, policy = f.policy.value, rule = f.rule.value;
    const kind = this.kinds.get(policy)?.find((r) => r.name === rule)?.kind;
    return { policy, rule, kind, key: this.chosen ? this.chosen.key : f.key.value, id: this.chosen?.id };
  }

  async look() {
    clearTimeout(this.timer);
    const number = this.number = (this.number || 0) + 1;
    const of = this.of(), plan = this.form.elements.plan.value;
    try {
      const d = await ask(`peek?${new URLSearchParams({ ...subject(of), plan })}`);
      if (number !== this.number || !this.dialog.open) return;
      this.peeked = { of, limit: d.limit };
      set(byId('peek-key'), name(of));
      set(byId('peek-rule'), `in ${visible(of.rule)} of ${visible(of.policy)}`);
      const bar = this.dialog.querySelector('.bar');
      bar.hidden = d.used === undefined; // without the store, it is not known
      fill(bar, d.used || 0);
      set(byId('peek-words'), visible(d.words));
      byId('peek').hidden = false;
      this.timer = setTimeout(() => this.look(), 1000);
    } catch (err) {
      if (number !== this.number || !this.dialog.open) return;
      byId('peek').hidden = true;
      say(byId('inspector-status'), problem(err), true);
    }
  }

  act(action) {
    const { of, limit } = this.peeked;
    const done = (text) => {
      say(byId('inspector-status'), text);
      this.look();
    };
    this.confirmation.open({ reset: () => reset(of, done), override: () => override(of, limit, done), ban: () => ban(of, done) }[action]());
  }
}
