namespace Quantra.Client.Embedded.Json;

/// <summary>A request to the Python door.</summary>
/// <param name="Json">An object.</param>
/// <param name="Buffers">The arrays that it refers to; Python reads them without a copy.</param>
internal sealed record JsonRequest(string Json, IReadOnlyList<Array> Buffers);
