using System.Collections.Concurrent;
using Microsoft.Extensions.Logging;

namespace Quantra.Client.Tests;

/// <summary>Records log lines of all levels.</summary>
internal sealed class LogRecorder : ILoggerFactory
{
    public ConcurrentQueue<string> Lines { get; } = [];

    public void AddProvider(ILoggerProvider provider)
    {
    }

    public ILogger CreateLogger(string categoryName) => new Category(categoryName, Lines);

    public void Dispose()
    {
    }

    private sealed class Category(string name, ConcurrentQueue<string> lines) : ILogger
    {
        public IDisposable? BeginScope<TState>(TState state)
            where TState : notnull => null;

        public bool IsEnabled(LogLevel logLevel) => true;

        public void Log<TState>(
            LogLevel logLevel, EventId eventId, TState state, Exception? exception, Func<TState, Exception?, string> formatter) =>
            lines.Enqueue($"{name}: {formatter(state, exception)} {exception}");
    }
}
