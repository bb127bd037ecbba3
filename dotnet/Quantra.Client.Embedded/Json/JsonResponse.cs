namespace Quantra.Client.Embedded.Json;

/// <summary>An answer of the Python door, copied out of Python.</summary>
/// <param name="Json">An object.</param>
/// <param name="Buffers">The arrays that it refers to.</param>
internal sealed record JsonResponse(string Json, double[][] Buffers);
