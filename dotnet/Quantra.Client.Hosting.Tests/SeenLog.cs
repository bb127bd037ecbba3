using System.Collections.Concurrent;
using Microsoft.Extensions.Logging;

namespace Quantra.Client.Hosting.Tests;

/// <summary>Keeps every line that is logged.</summary>
internal sealed class SeenLog : ILoggerFactory, ILoggerProvider
{
    public ConcurrentQueue<(string Category, LogLevel Level, string Text)> Lines { get; } = [];

    public void AddProvider(ILoggerProvider provider)
    {
    }

    public ILogger CreateLogger(string categoryName) => new Category(categoryName, this);

    public void Dispose()
    {
    }

    private sealed class Category(string name, SeenLog log) : ILogger
    {
        public IDisposable? BeginScope<TState>(TState state)
            where TState : notnull => null;

        public bool IsEnabled(LogLevel logLevel) => true;

        public void Log<TState>(LogLevel logLevel, EventId eventId, TState state, Exception? exception, Func<TState, Exception?, string> formatter) =>
            log.Lines.Enqueue((name, logLevel, formatter(state, exception)));
    }
}
