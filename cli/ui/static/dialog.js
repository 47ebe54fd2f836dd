// A change is confirmed in a dialog that says what it will do.
import {Failure, html, post, useEffect, useRef, useState} from "./core.js";

const CONSEQUENCES = {
  cancel: "Pending workloads end at once. The pods of running ones get SIGTERM and their grace period; the quota is given back when the pods are gone. A cancelled workload cannot be resumed.",
  hold: "The workloads stay in the queue, and are not admitted until they are released.",
  release: "The workloads may be admitted again, in their old order.",
  requeue: "Running pods are checkpointed if that is possible, stopped with their grace period, and give their quota back. The workloads queue again.",
  reprioritize: "The order of pending workloads changes with the next admission pass; it may let them preempt others.",
  checkpoint: "The workload keeps running. A checkpoint costs it a short pause where its processes are dumped.",
  migrate: "The workload is checkpointed and restarted on another node. It keeps its quota and does not queue again.",
  drill: "EC2 warns the instance now and takes it after two minutes. Every workload on that instance is migrated, or loses the work since its last checkpoint. This is a real interruption.",
  cordon: "No new work is admitted to the cluster. Running workloads stay.",
  uncordon: "The cluster takes new work again.",
  drain: "The cluster is cordoned. Its workloads stop with their grace period, give back their quota, and queue for another cluster.",
};

export function Action({verb, label, items, address, body = {}, plan, onDone, disabled}) {
  const [open, setOpen] = useState(false);
  return html`<button class=${`action action-${verb}`} disabled=${disabled} onClick=${() => setOpen(true)}>${label || verb}</button>
    ${open && html`<${Confirmation} ...${{verb, items, address, body, plan, onDone}} close=${() => setOpen(false)} />`}`;
}

function Confirmation({verb, items, address, body, plan, onDone, close}) {
  const dialog = useRef(null);
  const [reason, setReason] = useState("");
  const [priority, setPriority] = useState("0");
  const [results, setResults] = useState(null);
  const [planned, setPlanned] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    dialog.current.showModal();
    if (plan) plan().then(setPlanned, (error) => setPlanned(error.message));
  }, []);
  const carryOut = async (event) => {
    event.preventDefault();
    setBusy(true);
    const sent = {...body, reason};
    if (verb === "reprioritize") sent.priority = /^-?\d+$/.test(priority) ? Number(priority) : priority;
    const found = [];
    for (const item of items) {
      try {
        const answer = await post(address(item), sent);
        found.push({item, text: answer.result || (answer.experiment ? `${answer.instance} is warned` : "done")});
      } catch (error) {
        found.push({item, error});
      }
    }
    setResults(found);
    setBusy(false);
    onDone?.();
  };
  return html`<dialog ref=${dialog} onClose=${close} aria-labelledby="dialog-title">
    <form onSubmit=${carryOut}>
      <h2 id="dialog-title">${verb} ${items.length === 1 ? items[0].name || items[0].id : `${items.length} workloads`}</h2>
      <p>${CONSEQUENCES[verb]}</p>
      ${planned && html`<p class="plan">${planned}</p>`}
      ${items.length > 1 && html`<ul class="targets">${items.slice(0, 12).map((item) => html`<li>${item.name} <code>${item.id}</code> ${item.phase}</li>`)}
        ${items.length > 12 && html`<li>and ${items.length - 12} more</li>`}</ul>`}
      ${!results && verb === "reprioritize" && html`<label>Priority <input value=${priority} onInput=${(event) => setPriority(event.target.value)} /></label>`}
      ${!results && verb !== "drill" && html`<label>Reason <input value=${reason} onInput=${(event) => setReason(event.target.value)} placeholder="shown in the timeline" /></label>`}
      ${results && html`<ul class="results">${results.map(({item, text, error}) => html`<li>${item.name || item.id}: ${text || html`<${Failure} error=${error} />`}</li>`)}</ul>`}
      <div class="buttons">
        <button type="button" onClick=${() => dialog.current.close()}>${results ? "close" : "keep as it is"}</button>
        ${!results && html`<button class=${`primary action-${verb}`} disabled=${busy}>${busy ? "…" : verb}</button>`}
      </div>
    </form>
  </dialog>`;
}

export const workloadAddress = (verb) => (item) =>
  verb === "drill" ? `/drill/${encodeURIComponent(item.id)}` : `/api/workloads/${encodeURIComponent(item.id)}/${verb}`;
