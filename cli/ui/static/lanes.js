// An interruption as lanes: source, checkpoints, replacement, against the two minutes of EC2.
import {html, time, useNow} from "./core.js";

const NOTICE = "InterruptionNoticed";
const WIDTH = 940;
const LEFT = 120;
const ROW = 34;
const GRACE_MS = 120_000;

// One object for each notice in a timeline: what happened until the workload ran again.
export function interruptions(events) {
  const found = [];
  for (const event of events) {
    if (event.what === NOTICE) found.push({notice: event, events: []});
    else if (found.length) found[found.length - 1].events.push(event);
  }
  return found.map(({notice, events: after}) => {
    const until = after.findIndex((event) => event.what === "Resumed");
    const during = until < 0 ? after : after.slice(0, until + 1);
    const first = (...names) => during.find((event) => names.includes(event.what));
    const dumps = [];
    for (const event of during) {
      if (/CheckpointDecided$/.test(event.what)) dumps.push({from: event.at, to: null, ok: null, message: event.message});
      const open = dumps[dumps.length - 1];
      if (open && !open.to && /^Checkpoint(Completed|Failed)$/.test(event.what)) {
        Object.assign(open, {to: event.at, ok: event.what === "CheckpointCompleted", message: event.message});
      }
    }
    return {
      at: notice.at,
      message: notice.message,
      // A decision against a dump, or one that the restart has overtaken, has no bar.
      dumps: dumps.filter((dump) => dump.to || (until < 0 && /dump/.test(dump.message))),
      ready: first("ReplacementReady"),
      fenced: first("SourceFenced"),
      resumed: first("Resumed"),
      ended: first("Succeeded", "Failed", "Cancelled", "Requeued"),
      events: [notice, ...during],
    };
  });
}

export function Lanes({interruption}) {
  const {at, dumps, ready, fenced, resumed, ended} = interruption;
  const open = !resumed && !ended;
  const now = useNow(open ? 500 : 60_000);
  const last = Math.max(...interruption.events.map((event) => event.at));
  const current = open ? Math.max(now, last) : last;
  const end = Math.max(at + GRACE_MS, current) + 5_000;
  const x = (moment) => LEFT + ((Math.min(moment, end) - at) / (end - at)) * (WIDTH - LEFT - 10);
  const bar = (row, from, to, kind, title) => html`<rect class=${`bar ${kind}`} x=${x(from)} y=${row * ROW + 8} height="18" rx="3"
    width=${Math.max(3, x(to) - x(from))}><title>${title}</title></rect>`;
  const mark = (row, moment, label, kind = "small") => html`<g><line class="mark" x1=${x(moment)} x2=${x(moment)} y1=${row * ROW + 4} y2=${row * ROW + 30} />
    <text class=${kind} x=${x(moment) + 6} y=${row * ROW + 21}>${label}</text></g>`;
  const left = Math.max(0, Math.round((at + GRACE_MS - current) / 1000));
  const standstill = fenced && resumed ? ` after ${((resumed.at - (dumps.at(-1)?.from ?? fenced.at)) / 1000).toFixed(0)} s without work` : "";
  const summary = resumed
    ? `runs again ${((resumed.at - at) / 1000).toFixed(1)} s after the notice`
    : ended ? ended.what.toLowerCase() : `${left} s are left`;
  return html`<figure class="lanes">
    <figcaption><strong>${time(at)}</strong> ${interruption.message} <span class=${open ? "countdown" : "muted"}>${summary}</span></figcaption>
    <svg viewBox=${`0 0 ${WIDTH} ${ROW * 3 + 28}`} role="img" aria-label=${`Interruption at ${time(at)}: ${summary}${standstill}`}>
      <defs><pattern id="stripes" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="stripe" width="3" height="6" /></pattern></defs>
      ${["source", "checkpoint", "replacement"].map((label, row) => html`<g key=${label}>
        <text x="0" y=${row * ROW + 21}>${label}</text><line class="rail" x1=${LEFT} x2=${WIDTH - 10} y1=${row * ROW + 17} y2=${row * ROW + 17} /></g>`)}
      ${bar(0, at, fenced?.at || (resumed ? resumed.at : current), "source", "the source runs")}
      ${fenced && mark(0, fenced.at, "no pod left")}
      ${dumps.map((dump) => bar(1, dump.from, dump.to || current, dump.ok === false ? "failed" : dump.ok ? "dump" : "dumping", dump.message))}
      ${bar(2, at, ready?.at || (resumed ? resumed.at : current), "starting", "a replacement node starts")}
      ${ready && bar(2, ready.at, resumed?.at || current, "restoring", "waits for the source, then restores")}
      ${resumed && bar(2, resumed.at, end, "running", resumed.message)}
      ${ready && mark(2, ready.at, `node ready after ${((ready.at - at) / 1000).toFixed(1)} s`, "light")}
      <line class="deadline" x1=${x(at + GRACE_MS)} x2=${x(at + GRACE_MS)} y1="0" y2=${ROW * 3} />
      ${open && html`<line class="now" x1=${x(current)} x2=${x(current)} y1="0" y2=${ROW * 3} />`}
      ${[0, 30, 60, 90, 120].map((second) => html`<text key=${second} class="small axis" x=${x(at + second * 1000) - (second === 120 ? 40 : 0)} y=${ROW * 3 + 18}>${second === 120 ? "120 s: instance gone" : `${second} s`}</text>`)}
    </svg></figure>`;
}
