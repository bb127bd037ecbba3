using Microsoft.Extensions.Logging;

namespace Quantra.Client.Hosting.Tests;

/// <summary>A logged line.</summary>
internal sealed record LogLine(string Category, LogLevel Level, string Text);
