export function Dead() { return <h1>Dead</h1>; }
