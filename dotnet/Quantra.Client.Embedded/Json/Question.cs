namespace Quantra.Client.Embedded.Json;

/// <summary>A question to the Python door.</summary>
/// <param name="Json">An object.</param>
/// <param name="Buffers">The arrays that it names; Python reads them where they lie.</param>
internal sealed record Question(string Json, IReadOnlyList<Array> Buffers);
