// The server's snapshots, and whether they still come.

const SNAPSHOT = "/api/snapshot";
const STREAM = "/api/stream";
/** A snapshot comes each second. */
const LATE_S = 5;
const [FIRST_WAIT_S, LONGEST_WAIT_S] = [1, 15];

export class Stream {
  /**
   * `took` is called with each snapshot, `told` once a second and at each change with
   * `{state, ageS}`: `connecting`, `live`, `late` (connected, and nothing new comes) or
   * `lost`.
   */
  constructor(took, told) {
    this._took = took;
    this._told = told;
    this._newAt = null;
    this._atS = 0;
    this._isOpen = false;
    this._wasOpen = false;
    this._waitS = FIRST_WAIT_S;
  }

  /** Begin, and go on for ever. */
  start() {
    this._once();
    this._connect();
    setInterval(() => this._tell(), 1000);
    // Of a machine that wakes up, or a network that is back, nobody waits 15 s.
    window.addEventListener("online", () => this._now());
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && !this._isOpen) this._now();
    });
  }

  async _once() {
    try {
      const answer = await fetch(SNAPSHOT);
      // Whoever is no longer logged in gets the page on which that can be done.
      if (answer.status === 401) location.reload();
      if (answer.ok) this._take(await answer.json());
    } catch {
      // The stream says it.
    }
  }

  _connect() {
    clearTimeout(this._timer);
    this._source?.close();
    const source = (this._source = new EventSource(STREAM));
    source.addEventListener("open", () => {
      this._isOpen = this._wasOpen = true;
      this._waitS = FIRST_WAIT_S;
      this._tell();
    });
    source.addEventListener("snapshot", (event) => this._take(JSON.parse(event.data)));
    source.addEventListener("error", () => this._again(source));
  }

  _again(source) {
    // The browser's own way gives up at any answer but 200; ours does not.
    source.close();
    this._isOpen = false;
    this._tell();
    this._timer = setTimeout(() => this._now(), this._waitS * 1000);
    this._waitS = Math.min(LONGEST_WAIT_S, this._waitS * 2);
  }

  _now() {
    if (this._isOpen) return;
    this._once();
    this._connect();
  }

  _take(snapshot) {
    // Its clock is not ours: only that it goes on counts.
    if (snapshot.at_s !== this._atS) this._newAt = performance.now();
    this._atS = snapshot.at_s;
    this._took(snapshot);
    this._tell();
  }

  _tell() {
    const ageS = this._newAt === null ? null : (performance.now() - this._newAt) / 1000;
    const isLate = ageS !== null && ageS > LATE_S;
    const open = ageS === null ? "connecting" : isLate ? "late" : "live";
    const closed = this._wasOpen || this._waitS > FIRST_WAIT_S ? "lost" : "connecting";
    this._told({ state: this._isOpen ? open : closed, ageS });
  }
}

/** Fetch something of the API; raise an Error that says in words what is wrong. */
export async function ask(path, parameters) {
  const answer = await fetch(`/api/${path}?${new URLSearchParams(parameters)}`);
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(found.error ?? `the server answers ${answer.status}`);
  return found;
}
