// What if: a recorded admission pass, decided again with another nominal quota.
import {Empty, Failure, Link, get, go, html, short, useEffect, useLive, useState, withQuery} from "./core.js";

const shown = (cell, value) => (cell.resource === "cpu" ? short(value / 1000) : short(value));

export function WhatIf({query}) {
  const {data: queues} = useLive("/api/queues", 30);
  const roots = [...new Set((queues?.items || []).map((queue) => queue.cohort || queue.name))];
  const {data: ledgers} = useLive("/api/ledgers", 60);
  const known = ledgers?.items?.map((one) => one.root) || roots;
  const root = query.root && known.includes(query.root) ? query.root : known[0];
  const {data, error} = useLive(root && `/quotas/${encodeURIComponent(root)}`, 30);
  const [pinned, setPinned] = useState(null);
  useEffect(() => { if (data?.pass && (!pinned || pinned.root !== root)) setPinned({...data, root}); }, [data, root]);
  if (error) return html`<section><h1>What if</h1><${Failure} error=${error} /></section>`;
  return html`<section>
    <header class="title"><h1>What if a quota were another</h1>
      <p class="muted">The newest recorded admission pass is decided again on this machine, by the same code. Nothing changes in the deployment.</p></header>
    <div class="tabs">${known.map((name) => html`<button aria-pressed=${name === root} onClick=${() => go(withQuery("/whatif", {root: name}), true)}>${name}</button>`)}</div>
    ${root && !data && html`<p class="muted">reading the newest recorded pass …</p>`}
    ${data && !data.pass && html`<${Empty} title="No recorded pass">A pass is recorded when it decides something; submit a workload first.<//>`}
    ${pinned?.pass && pinned.root === root && html`<${Slider} key=${root} root=${root} pass=${pinned.pass} cells=${pinned.cells} queue=${query.queue} />`}
  </section>`;
}

function Slider({root, pass, cells, queue}) {
  const [index, setIndex] = useState(() => Math.max(0, cells.findIndex((cell) => cell.queue === queue)));
  const cell = cells[index];
  const [nominal, setNominal] = useState(cell.nominal);
  const [answer, setAnswer] = useState(null);
  const [failed, setFailed] = useState(null);
  const most = Math.max(cell.nominal * 3, cell.resource === "cpu" ? 8000 : 8);
  const step = Math.max(1, Math.round(most / 240));
  useEffect(() => {
    let alive = true;
    const {queue: name, flavor, resource} = cell;
    const address = withQuery(`/trial/${encodeURIComponent(root)}`, {version: String(pass.version), queue: name, flavor, resource, nominal: String(nominal)});
    const timer = setTimeout(() => get(address).then((found) => alive && (setAnswer(found), setFailed(null)), (error) => alive && setFailed(error)), 60);
    return () => { alive = false; clearTimeout(timer); };
  }, [index, nominal]);
  const choose = (number) => { setIndex(number); setNominal(cells[number].nominal); };
  const ids = (list) => new Set(list.map((one) => one.id));
  const [before, after] = [answer?.recorded, answer?.trial];
  const more = after ? after.admitted.filter((one) => !ids(before.admitted).has(one.id)) : [];
  const fewer = after ? before.admitted.filter((one) => !ids(after.admitted).has(one.id)) : [];
  const yields = after ? after.preempted.filter((one) => !ids(before.preempted).has(one.id)) : [];
  return html`<div class="card slider">
    <label>Quota <select onChange=${(event) => choose(Number(event.target.value))}>${cells.map((one, number) => html`<option value=${number} selected=${number === index}>${one.queue}: ${one.resource} of ${one.flavor}</option>`)}</select></label>
    <label class="range">Nominal <output>${shown(cell, nominal)}</output> <span class="muted">is ${shown(cell, cell.nominal)}</span>
      <input type="range" min="0" max=${most} step=${step} value=${nominal} aria-label="nominal quota" onInput=${(event) => setNominal(Number(event.target.value))} /></label>
    <${Failure} error=${failed} />
    ${after && html`<p class="verdict" aria-live="polite"><strong>${after.admitted.length}</strong> start, <strong>${after.preempted.length}</strong> yield, <strong>${after.waiting}</strong> wait.
      <span class="muted"> Pass ${pass.version} of ${root} decided: ${before.admitted.length} start, ${before.preempted.length} yield, ${before.waiting} wait.</span></p>
      <div class="columns">${[["Would start too", more, "good"], ["Would not start", fewer, "bad"], ["Would yield too", yields, "bad"]].map(([title, list, kind]) => html`<div class=${`delta ${list.length ? kind : ""}`}><h3>${list.length} ${title.toLowerCase()}</h3>
        <ul>${list.slice(0, 12).map((one) => html`<li><${Link} href=${`/workloads/${one.id}`}>${one.name || one.id}<//> <span class="muted">${one.queue}</span></li>`)}${list.length > 12 && html`<li>and ${list.length - 12} more</li>`}</ul></div>`)}</div>`}
  </div>`;
}
