using Microsoft.Extensions.Logging;

namespace Quantra.Client.Hosting.Tests;

/// <summary>A line that was logged.</summary>
internal sealed record SeenLine(string Category, LogLevel Level, string Text);
