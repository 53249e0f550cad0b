import { to } from "../router.ts";
import { Icon } from "../ui/icons.tsx";
import type { Kind } from "./kinds.tsx";

export function KindRates({ kinds }: { kinds: Kind[] }) {
  return (
    <div class="table-wrap">
      <table class="table kinds">
        <thead>
          <tr><th>Kind</th><th>Queue</th><th class="number">Attempts</th><th class="number">Workers</th><th /></tr>
        </thead>
        <tbody>
          {kinds.map((each) => (
            <tr key={each.kind}>
              <th scope="row"><a class="name" href={to(["kinds", each.kind])}>{each.kind}</a></th>
              <td data-label="queue">{each.queue ?? <span class="soft">elsewhere</span>}</td>
              <td class="number" data-label="attempts">{each.max_attempts ?? "–"}</td>
              <td class="number" data-label="workers">{each.workers}</td>
              <td class="row-actions">
                <a class="button ghost" href={to(["kinds", each.kind])} aria-label={`Enqueue ${each.kind}`}>
                  <Icon name="plus" /> <span>Enqueue</span>
                </a>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function KindHistory(_: { kind: string }) {
  return null;
}
