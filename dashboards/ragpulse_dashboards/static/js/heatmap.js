export function startHeatmap() {}
