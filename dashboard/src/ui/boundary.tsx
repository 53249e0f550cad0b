// A mistake of ours in one screen is no white page: the frame stays, and says what happened.

import { Component, type ComponentChildren } from "preact";

import { Button } from "./basics.tsx";
import { Icon } from "./icons.tsx";

interface State {
  error: Error | undefined;
}

export class Boundary extends Component<{ children: ComponentChildren }, State> {
  override state: State = { error: undefined };

  static override getDerivedStateFromError(error: unknown): State {
    return { error: error instanceof Error ? error : new Error(String(error)) };
  }

  override componentDidCatch(error: unknown): void {
    console.error("the dashboard failed to draw a screen", error);
  }

  override render() {
    const { error } = this.state;
    if (!error) return this.props.children;
    return (
      <div class="trouble" role="alert">
        <Icon name="dead" />
        <div class="trouble-text">
          <h1 tabIndex={-1}>This screen could not be drawn</h1>
          <p>
            That is a mistake of the dashboard, not of your jobs. Other screens still work. Please
            report it with this text: <code>{error.message}</code>
          </p>
        </div>
        <Button icon="retry" onClick={() => this.setState({ error: undefined })}>
          Try again
        </Button>
      </div>
    );
  }
}
